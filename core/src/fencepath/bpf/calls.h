// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Recording calls of user-space functions. fencepath.calls writes a header, fp_calls.h, that includes this one and
 * instantiates FP_CALL once for every distinct way to copy a call; which function it was, and the number of its kind,
 * are in the attach cookie: kind << 32 | function.
 *
 * A call is kept in a hash map from its entry to its return, keyed by thread, stack pointer at entry and function, so
 * that nesting, recursion and tail jumps are told apart. The value is the head of the record, so that user space can
 * write it for a call that does not return. Entries of returned calls stay, marked as free, for the next call of that
 * function at that place: to insert and delete one each time would double the cost of a call. Once there are more than
 * FP_ENTRIES_KEPT, returns delete theirs.
 *
 * Programs use at most 48 bytes of stack and build everything in the map or ring. From 6.13 a program of 64 bytes,
 * rounded up to 16, may run on a stack of its own for each CPU (BPF_PRIV_STACK_MIN_SIZE in kernel/bpf/verifier.c), where
 * another task that preempts it runs the same program.
 *
 * Macros given by -D:
 *   FP_ENTRIES_FD      hash map of struct fp_entry_key to struct fp_entry
 *   FP_ENTRIES_KEPT    how many entries it may have before returns delete theirs
 *   FP_ENTRIES_STATE_FD    array of one struct fp_entries_state
 *   FP_TASK_UTASK, FP_UTASK_RETURNS, FP_RETURN_ADDRESS, FP_RETURN_STACK    offsets in kernel structs, if known
 */
#ifndef FENCEPATH_CALLS_H
#define FENCEPATH_CALLS_H

#include "fencepath.h"

/* _calls/captures.py, SHAPES */
#define FP_MOST_ARGS 14
#define FP_TEXT_BYTES 384

/* records.CALL_HEAD; begin_ns is CLOCK_MONOTONIC, caller_ip the return address. */
#define FP_CALL_HEAD                                                                                                   \
    struct fp_header h;                                                                                                \
    u64 begin_ns;                                                                                                      \
    u32 function;                                                                                                      \
    u32 reserved;                                                                                                      \
    u64 caller_ip;

struct fp_call_head {
    FP_CALL_HEAD
};

struct fp_call_small {
    FP_CALL_HEAD
    u64 args[7];
    u64 out[2];
    u64 result;
    char text[0];
};

struct fp_call_launch {
    FP_CALL_HEAD
    u64 args[9];
    u64 out[0];
    u64 result;
    char text[0];
};

struct fp_call_large {
    FP_CALL_HEAD
    u64 args[14];
    u64 out[4];
    u64 result;
    char text[0];
};

struct fp_call_text {
    FP_CALL_HEAD
    u64 args[7];
    u64 out[2];
    u64 result;
    char text[FP_TEXT_BYTES];
};

/* _calls/entries.py has both as dtypes. */
struct fp_entry_key {
    u64 sp;
    u32 tid;
    u32 function;
    u32 kind;
    u32 reserved;
};

/* begin_ns is 0 while it is free or being filled in. h.time_ns is when it was last used. */
struct fp_entry {
    FP_CALL_HEAD
    u64 args[FP_MOST_ARGS];
};

struct fp_entries_state {
    struct fp_entry empty;      /* all 0: what an entry begins as */
    u64 inserted;
    u64 deleted;                /* by programs */
    u64 deleted_by_user;        /* by user space, which alone writes it */
};

#if defined(__x86_64__) || defined(__TARGET_ARCH_x86)

#define FP_SP_AT_ENTRY(ctx) ((ctx)->sp)
/* The return has taken its address from the stack. */
#define FP_SP_AT_RETURN(ctx) ((ctx)->sp - 8)

/*
 * Copy machine words 0 to `words` - 1 and the return address. The stack has the return address and then the words after
 * the sixth: one read gets them all, to where the sixth, a register, is stored afterwards.
 */
static __always_inline void fp_call_words(struct pt_regs *ctx, struct fp_call_head *head, u64 *args, const u32 words) {
    if (words > 6) {
        if (bpf_probe_read_user(&args[5], 8 * (words - 5), (void *)ctx->sp))
            head->h.flags |= FP_READ_FAULT;
        head->caller_ip = args[5];
    } else if (bpf_probe_read_user(&head->caller_ip, 8, (void *)ctx->sp)) {
        head->h.flags |= FP_READ_FAULT;
    }
    if (words > 0)
        args[0] = ctx->di;
    if (words > 1)
        args[1] = ctx->si;
    if (words > 2)
        args[2] = ctx->dx;
    if (words > 3)
        args[3] = ctx->cx;
    if (words > 4)
        args[4] = ctx->r8;
    if (words > 5)
        args[5] = ctx->r9;
}

#else /* arm64; fencepath.h has refused any other */

#define FP_SP_AT_ENTRY(ctx) ((ctx)->sp)
#define FP_SP_AT_RETURN(ctx) ((ctx)->sp)

static __always_inline void fp_call_words(struct pt_regs *ctx, struct fp_call_head *head, u64 *args, const u32 words) {
    head->caller_ip = ctx->regs[30];
#pragma unroll
    for (u32 i = 0; i < FP_MOST_ARGS; i++)
        if (i < words && i < 8)
            args[i] = ctx->regs[i];
    if (words > 8 && bpf_probe_read_user(&args[8], 8 * (words - 8), (void *)ctx->sp))
        head->h.flags |= FP_READ_FAULT;
}

#endif

/*
 * The return address of a function that was jumped to from one with a return probe is that of the kernel's trampoline,
 * which begins a page. The true one is in the newest pending return, if that has replaced this very place of the stack.
 */
static __always_inline void fp_call_caller(struct pt_regs *ctx, struct fp_call_head *head) {
#ifdef FP_TASK_UTASK
    const u64 seen = head->caller_ip;
    u64 pending = 0;

    if (seen & 0xfff)
        return;
    bpf_probe_read_kernel(&pending, 8, (char *)bpf_get_current_task() + FP_TASK_UTASK);
    bpf_probe_read_kernel(&pending, 8, (char *)pending + FP_UTASK_RETURNS);
    /* Each read goes to the record, for want of stack. */
    bpf_probe_read_kernel(&head->caller_ip, 8, (char *)pending + FP_RETURN_STACK);
    if (pending && head->caller_ip == FP_SP_AT_ENTRY(ctx))
        bpf_probe_read_kernel(&head->caller_ip, 8, (char *)pending + FP_RETURN_ADDRESS);
    else
        head->caller_ip = seen;
#endif
}

/* Copy through a pointer that is one of args. Where that is null the call has no such value, and what is there stays. */
static __always_inline void fp_call_read(struct fp_call_head *head, u64 *to, const u32 bytes, u64 pointer, u32 offset) {
    if (pointer && bpf_probe_read_user(to, bytes, (void *)(pointer + offset)))
        head->h.flags |= FP_READ_FAULT;
}

/* The same of an array of words, of which there are `count`; what is behind them in the record stays. */
static __always_inline void fp_call_read_up_to(struct fp_call_head *head, u64 *to, const u32 words, u64 pointer,
                                               u32 offset, u64 count) {
    if (count > words)
        count = words;
    /* The verifier has seen the bound, and the compiler must not find another way to it. */
    asm volatile("" : "+r"(count));
    if (pointer && count && bpf_probe_read_user(to, 8 * count, (void *)(pointer + offset)))
        head->h.flags |= FP_READ_FAULT;
}

/*
 * Copy a text that ends in NUL to memory that is 0. The helper says the same of one that fits exactly and of one that it
 * had to cut, so the byte in which they differ is looked at.
 */
static __always_inline void fp_call_read_text(struct fp_call_head *head, char *to, const u32 bytes, u64 pointer) {
    long copied;

    if (!pointer)
        return;
    copied = bpf_probe_read_user_str(to, bytes, (void *)pointer);
    if (copied < 0) {
        head->h.flags |= FP_READ_FAULT;
    } else if (copied >= bytes) {
        if (bpf_probe_read_user(&to[bytes - 1], 1, (void *)(pointer + bytes - 1)) || to[bytes - 1])
            head->h.flags |= FP_TRUNCATED;
        to[bytes - 1] = 0;
    }
}

static __always_inline void fp_call_key(struct fp_entry_key *key, u64 cookie, u64 sp) {
    key->sp = sp;
    key->tid = (u32)bpf_get_current_pid_tgid();
    key->function = (u32)cookie;
    key->kind = cookie >> 32;
    key->reserved = 0;
}

static __always_inline struct fp_entries_state *fp_entries_state(void) {
    u32 first = 0;

    return bpf_map_lookup_elem(FP_MAP(FP_ENTRIES_STATE_FD), &first);
}

static __always_inline struct fp_entry *fp_entry_insert(struct fp_entry_key *key) {
    struct fp_entries_state *state = fp_entries_state();

    if (!state)
        return 0;
    if (bpf_map_update_elem(FP_MAP(FP_ENTRIES_FD), key, &state->empty, BPF_NOEXIST) == 0)
        __sync_fetch_and_add(&state->inserted, 1);
    return bpf_map_lookup_elem(FP_MAP(FP_ENTRIES_FD), key);
}

/* Give an entry back. Two programs at once may leave one more or less than FP_ENTRIES_KEPT, which does no harm. */
static __always_inline void fp_entry_free(struct fp_entry_key *key, struct fp_entry *entry) {
    struct fp_entries_state *state = fp_entries_state();

    *(volatile u64 *)&entry->begin_ns = 0;
    if (!state || state->inserted - state->deleted - state->deleted_by_user <= FP_ENTRIES_KEPT)
        return;
    if (bpf_map_delete_elem(FP_MAP(FP_ENTRIES_FD), key) == 0)
        __sync_fetch_and_add(&state->deleted, 1);
}

/* Make the entry of the call that begins here, or return 0, counted. */
static __always_inline struct fp_entry *fp_call_begin(struct pt_regs *ctx) {
    struct fp_entry_key key;
    struct fp_entry *entry;

    fp_call_key(&key, bpf_get_attach_cookie(ctx), FP_SP_AT_ENTRY(ctx));
    entry = bpf_map_lookup_elem(FP_MAP(FP_ENTRIES_FD), &key);
    if (!entry) {
        entry = fp_entry_insert(&key);
    } else if (entry->begin_ns) {
        fp_lost(key.kind, FP_STAGE_OVERWRITTEN);
        *(volatile u64 *)&entry->begin_ns = 0;
    }
    if (!entry) {
        fp_lost(key.kind, FP_STAGE_MAP_FULL);
        return 0;
    }
    fp_fill(&entry->h, key.kind, FP_TASK);
    entry->function = key.function;
    return entry;
}

static __always_inline void fp_call_begun(struct fp_entry *entry) {
    asm volatile("" ::: "memory");
    *(volatile u64 *)&entry->begin_ns = entry->h.time_ns;
}

/* Head and args of a record from its entry. The size is known when the macro below is expanded. */
static __always_inline void fp_call_copy(void *record, const struct fp_entry *entry, const u32 bytes) {
    u64 *to = record;
    const u64 *from = (const u64 *)entry;

#pragma unroll
    for (u32 i = 0; i < sizeof(struct fp_entry) / 8; i++)
        if (8 * i < bytes)
            to[i] = from[i];
}

/* Inside the programs: `fp_call` is the entry or the record, and begins with a head. */
#define FP_HEAD ((struct fp_call_head *)fp_call)

#define FP_READ(slot, offset, words, into)                                                                             \
    fp_call_read(FP_HEAD, &fp_call->args[into], 8 * (words), fp_call->args[slot], offset);

#define FP_READ_UP_TO(slot, offset, words, into, count)                                                                \
    fp_call_read_up_to(FP_HEAD, &fp_call->args[into], words, fp_call->args[slot], offset, fp_call->args[count]);

#define FP_OUT(index, slot, offset, bytes)                                                                             \
    fp_call_read(FP_HEAD, &fp_call->out[index], bytes, fp_call->args[slot], offset);

#define FP_TEXT(slot, bytes) fp_call_read_text(FP_HEAD, fp_call->text, bytes, fp_call->args[slot]);

#define FP_CLEAR_TEXT()                                                                                                \
    do {                                                                                                               \
        if (sizeof(fp_call->text))                                                                                     \
            fp_clear(fp_call->text, sizeof(fp_call->text));                                                            \
    } while (0)

#define FP_CALL_SUBMIT()                                                                                               \
    do {                                                                                                               \
        if (fp_call->h.flags & FP_READ_FAULT)                                                                          \
            fp_lost(fp_call->h.kind, FP_STAGE_READ_FAULT);                                                             \
        fp_submit(fp_call);                                                                                            \
    } while (0)

/*
 * The programs fp_enter_N, fp_return_N and fp_once_N. `reads` are FP_READ and FP_READ_UP_TO, `outs` FP_OUT, as many as
 * there are; `texts` is FP_TEXT or nothing.
 * What a return probe shows as instruction pointer is the function's own return address.
 */
#define FP_CALL(number, shape, words, reads, outs, texts)                                                              \
    int fp_enter_##number(struct pt_regs *ctx) {                                                                       \
        struct fp_entry *fp_call;                                                                                      \
                                                                                                                       \
        if (!fp_is_target())                                                                                           \
            return 0;                                                                                                  \
        fp_call = fp_call_begin(ctx);                                                                                  \
        if (!fp_call)                                                                                                  \
            return 0;                                                                                                  \
        fp_call_words(ctx, FP_HEAD, fp_call->args, words);                                                             \
        reads;                                                                                                         \
        fp_call_caller(ctx, FP_HEAD);                                                                                  \
        fp_call_begun(fp_call);                                                                                        \
        return 0;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    int fp_return_##number(struct pt_regs *ctx) {                                                                      \
        struct fp_entry_key key;                                                                                       \
        struct fp_entry *entry;                                                                                        \
        struct fp_call_##shape *fp_call;                                                                               \
                                                                                                                       \
        fp_call_key(&key, bpf_get_attach_cookie(ctx), FP_SP_AT_RETURN(ctx));                                           \
        entry = bpf_map_lookup_elem(FP_MAP(FP_ENTRIES_FD), &key);                                                      \
        if (!entry || !entry->begin_ns) {                                                                              \
            if (fp_is_target())                                                                                        \
                fp_lost(key.kind, FP_STAGE_NO_ENTRY);                                                                  \
            return 0;                                                                                                  \
        }                                                                                                              \
        fp_call = FP_RESERVE(struct fp_call_##shape, key.kind);                                                        \
        if (fp_call) {                                                                                                 \
            fp_call_copy(fp_call, entry, __builtin_offsetof(struct fp_call_##shape, out));                             \
            fp_call->h.time_ns = fp_now();                                                                             \
            fp_call->h.cpu = bpf_get_smp_processor_id();                                                               \
            fp_call->caller_ip = PT_REGS_IP(ctx);                                                                      \
            fp_call->result = PT_REGS_RC(ctx);                                                                         \
            __builtin_memset(fp_call->out, 0, sizeof(fp_call->out));                                                   \
            FP_CLEAR_TEXT();                                                                                           \
            outs;                                                                                                      \
            texts;                                                                                                     \
            FP_CALL_SUBMIT();                                                                                          \
        }                                                                                                              \
        fp_entry_free(&key, entry);                                                                                    \
        return 0;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    int fp_once_##number(struct pt_regs *ctx) {                                                                        \
        u64 cookie;                                                                                                    \
        struct fp_call_##shape *fp_call;                                                                               \
                                                                                                                       \
        if (!fp_is_target())                                                                                           \
            return 0;                                                                                                  \
        cookie = bpf_get_attach_cookie(ctx);                                                                           \
        fp_call = FP_RESERVE(struct fp_call_##shape, cookie >> 32);                                                    \
        if (!fp_call)                                                                                                  \
            return 0;                                                                                                  \
        fp_fill(&fp_call->h, cookie >> 32, FP_TASK | FP_ENTRY_ONLY);                                                   \
        fp_call->begin_ns = fp_call->h.time_ns;                                                                        \
        fp_call->function = (u32)cookie;                                                                               \
        fp_call->reserved = 0;                                                                                         \
        __builtin_memset(fp_call->args, 0, __builtin_offsetof(struct fp_call_##shape, text) -                          \
                                               __builtin_offsetof(struct fp_call_##shape, args));                      \
        FP_CLEAR_TEXT();                                                                                               \
        fp_call_words(ctx, FP_HEAD, fp_call->args, words);                                                             \
        reads;                                                                                                         \
        texts;                                                                                                         \
        fp_call_caller(ctx, FP_HEAD);                                                                                  \
        FP_CALL_SUBMIT();                                                                                              \
        return 0;                                                                                                      \
    }

#endif
