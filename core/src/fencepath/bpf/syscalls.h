// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * System calls, entry and return, told apart by the device behind their fd. fencepath.syscalls makes the source: this
 * header and FP_SYSCALL_ENTER and FP_SYSCALL_EXIT for each system call that is traced.
 *
 * On some kernels (7.3 is one) a program of a system call can be preempted, and the kernel then skips that program for other
 * threads of the CPU, for as long as that lasts. So there it is attached in FP_SYSCALL_COPIES copies, each of which is a
 * program of its own: what the first one that is run has done, the others leave alone.
 *
 * Macros given by -D, besides those of fencepath.h:
 *   FP_SYSCALL_COPIES                                        how often each program is attached
 *   FP_SYSCALL_MATCH_FD, _ROWS_FD, _DEVICES_FD, _CALLS_FD, _MAPPINGS_FD    maps
 *   FP_OFFSET_<STRUCT>_<MEMBER>                              offsets of kernel structures, from BTF
 */
#ifndef FENCEPATH_SYSCALLS_H
#define FENCEPATH_SYSCALLS_H

#include "fencepath.h"

#define FP_SLOTS 4
#define FP_SLOT_RAW 1
#define FP_SLOT_MEMORY 2
#define FP_SLOT_VIA 3
#define FP_SLOT_NULLABLE 1

#define FP_MATCH_ALL 0
#define FP_MATCH_COMMAND 1
#define FP_MATCH_TYPE_NUMBER 2
#define FP_MATCH_SIZED 3
#define FP_MATCH_WHERE 4

/* Bits of a row's `how`. */
#define FP_ROW_SELECTS 1
#define FP_ROW_WRAPS 2
#define FP_ROW_MAPS 4
#define FP_ROW_UNMAPS 8

/* What tells the device of a call. */
#define FP_DEVICE_NONE 0
#define FP_DEVICE_FD 1
#define FP_DEVICE_FDS 2
#define FP_DEVICE_ADDRESS 3

/* Entries of an array of struct pollfd that are looked at, and where in args the address of the one found is. */
#define FP_ARRAY_FDS 16
#define FP_FOUND 6

/* _IOC_NR, _IOC_SIZE and all but the direction of an ioctl's command. */
#define FP_IOC_NUMBER 0xffu
#define FP_IOC_MOST 0x3fffu
#define FP_IOC_SIZED 0x3fffffffu

#define FP_ANY_MINOR 0xfffffu
#define FP_S_IFMT 0xf000
#define FP_S_IFCHR 0x2000

/* fencepath.syscalls.syscall_layout */
struct fp_syscall {
    struct fp_header h;
    u64 begin_ns;
    u32 function;
    s32 fd;
    u32 device;
    u32 command;
    u64 argument;
    s64 status;
    u64 before[FP_SLOTS];
    u64 after[FP_SLOTS];
};

struct fp_syscall_key {
    u16 syscall;
    u8 device_class;
    u8 how;
    u32 what;
    u32 base; /* of FP_MATCH_WHERE: the row that selects */
};

struct fp_syscall_slot {
    u8 how;
    u8 argument;
    u8 size;
    u8 flags;
    u16 offset;
    u16 via;
};

struct fp_syscall_row {
    u16 kind;
    u16 how;
    u32 function;
    u16 select; /* offset of the number that selects among rows */
    u16 number; /* offsets of a wrapped request's */
    u16 size;
    u16 pointer;
    struct fp_syscall_slot before[FP_SLOTS];
    struct fp_syscall_slot after[FP_SLOTS];
};

/* A mapping of a device, by its address in a process. */
struct fp_syscall_mapping {
    u64 address;
    u32 tgid;
    u32 reserved;
};

/* What a call goes to. */
struct fp_syscall_target {
    u32 *row;
    s32 fd;
    u32 device;
};

/* A call that has begun, by tid: a thread is in one system call at a time. Begins with its record, all that is known. */
struct fp_syscall_state {
    struct fp_syscall record;
    u32 row;
    u16 syscall;
    u16 copies; /* of the entry's program that will find it and have nothing to do */
    u64 args[8];
};

/*
 * The character device behind an fd of the current task, from the kernel's own table: exact whatever was dup'ed. 0: none.
 * A read that fails leaves 0, and a read near 0 fails, so that no step has to be tested: poll(2) does this for many fds.
 */
static __always_inline u32 fp_device_of(u32 fd)
{
    u64 at = bpf_get_current_task(), table = 0, file = 0, inode = 0;
    u32 count = 0, device = 0;
    u16 mode = 0;

    bpf_probe_read_kernel(&at, 8, (void *)(at + FP_OFFSET_TASK_STRUCT_FILES));
    bpf_probe_read_kernel(&table, 8, (void *)(at + FP_OFFSET_FILES_STRUCT_FDT));
    bpf_probe_read_kernel(&count, 4, (void *)(table + FP_OFFSET_FDTABLE_MAX_FDS));
    if (fd >= count)
        return 0;
    bpf_probe_read_kernel(&at, 8, (void *)(table + FP_OFFSET_FDTABLE_FD));
    bpf_probe_read_kernel(&file, 8, (void *)(at + 8 * (u64)fd));
    bpf_probe_read_kernel(&inode, 8, (void *)(file + FP_OFFSET_FILE_F_INODE));
    bpf_probe_read_kernel(&mode, 2, (void *)(inode + FP_OFFSET_INODE_I_MODE));
    if ((mode & FP_S_IFMT) != FP_S_IFCHR)
        return 0;
    bpf_probe_read_kernel(&device, 4, (void *)(inode + FP_OFFSET_INODE_I_RDEV));
    return device;
}

/* The class of a device, 0 if it is of none. */
static __always_inline u8 fp_device_class(u32 device)
{
    u32 any = device | FP_ANY_MINOR;
    u8 *class;

    if (!device)
        return 0;
    class = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_DEVICES_FD), &device);
    if (!class)
        class = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_DEVICES_FD), &any);
    return class ? *class : 0;
}

static __always_inline u32 *fp_syscall_match(u16 syscall, u8 class, u8 how, u32 what, u32 base)
{
    struct fp_syscall_key key = {.syscall = syscall, .device_class = class, .how = how, .what = what, .base = base};

    return bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_MATCH_FD), &key);
}

/* The row for a call that is no ioctl: the class's, else the one for any file. */
static __always_inline u32 *fp_call_match(u16 syscall, u8 class)
{
    u32 *row = class ? fp_syscall_match(syscall, class, FP_MATCH_ALL, 0, 0) : 0;

    return row ? row : fp_syscall_match(syscall, 0, FP_MATCH_ALL, 0, 0);
}

/* The row for an ioctl of a class: by the whole command, by type, number and size, without size, or the one for all the rest. */
static __always_inline u32 *fp_ioctl_row(u16 syscall, u8 class, u32 command)
{
    u32 *row = fp_syscall_match(syscall, class, FP_MATCH_COMMAND, command, 0);

    if (!row)
        row = fp_syscall_match(syscall, class, FP_MATCH_SIZED, command & FP_IOC_SIZED, 0);
    if (!row)
        row = fp_syscall_match(syscall, class, FP_MATCH_TYPE_NUMBER, command & 0xffff, 0);
    if (!row)
        row = fp_syscall_match(syscall, class, FP_MATCH_ALL, 0, 0);
    return row;
}

/* Put the request that another one carries into args in its place; the other's row, or 0 if it stays as it is. */
static __always_inline u32 *fp_ioctl_unwrap(u16 syscall, u8 class, const struct fp_syscall_row *row, u64 *args)
{
    u64 at = args[2], pointer = 0;
    u32 number = 0, size = 0, command, *index;
    const struct fp_syscall_row *inner;

    if (bpf_probe_read_user(&number, 4, (void *)(at + row->number)) ||
        bpf_probe_read_user(&size, 4, (void *)(at + row->size)) ||
        bpf_probe_read_user(&pointer, 8, (void *)(at + row->pointer)) || number > FP_IOC_NUMBER)
        return 0;
    if (size > FP_IOC_MOST)
        size = FP_IOC_MOST;
    command = ((u32)args[1] & ~(FP_IOC_MOST << 16 | FP_IOC_NUMBER)) | size << 16 | number;
    index = fp_ioctl_row(syscall, class, command);
    inner = index ? bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), index) : 0;
    if (!inner || inner->how & FP_ROW_WRAPS)
        return 0;
    args[1] = command;
    args[2] = pointer;
    return index;
}

/* The row for an ioctl, of what it carries, and by the number in its structure. */
static __always_inline u32 *fp_ioctl_match(u16 syscall, u8 class, u64 *args)
{
    u32 *index = class ? fp_ioctl_row(syscall, class, args[1]) : 0, *other = 0;
    const struct fp_syscall_row *row = index ? bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), index) : 0;
    u32 number = 0;

    if (!row)
        return 0;
    if (row->how & FP_ROW_WRAPS)
        other = fp_ioctl_unwrap(syscall, class, row, args);
    if (other) {
        index = other;
        row = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), index);
        if (!row)
            return 0;
    }
    if (!(row->how & FP_ROW_SELECTS) || bpf_probe_read_user(&number, 4, (void *)(args[2] + row->select)))
        return index;
    other = fp_syscall_match(syscall, class, FP_MATCH_WHERE, number, *index);
    return other ? other : index;
}

static __always_inline void fp_find_fd(u16 syscall, u32 is_ioctl, u32 fd, u64 *args, struct fp_syscall_target *target)
{
    u8 class;

    target->fd = fd;
    target->device = fp_device_of(fd);
    class = fp_device_class(target->device);
    target->row = is_ioctl ? fp_ioctl_match(syscall, class, args) : fp_call_match(syscall, class);
}

/* The first entry of an array of struct pollfd that is of a class that is asked for; its address goes into args. */
static __always_inline void fp_find_in_array(u16 syscall, u64 array, u32 count, u64 *args,
                                             struct fp_syscall_target *target)
{
    u32 device, *row = 0;
    s32 fd = 0;
    u8 class;

/*
 * 6.1 does not see the end of a loop whose counter the compiler keeps on the stack. It is unrolled, as its rounds are
 * always as many: none leaves early.
 */
#pragma unroll
    for (u32 i = 0; i < FP_ARRAY_FDS; i++) {
        if (row || i >= count || bpf_probe_read_user(&fd, 4, (void *)(array + 8 * i)))
            continue;
        /* a negative one, which poll(2) passes over, is beyond every table */
        device = fp_device_of(fd);
        class = fp_device_class(device);
        row = class ? fp_syscall_match(syscall, class, FP_MATCH_ALL, 0, 0) : 0;
        if (row) {
            args[FP_FOUND] = array + 8 * i;
            target->fd = fd;
            target->device = device;
        }
    }
    target->row = row ? row : fp_call_match(syscall, 0);
}

static __always_inline void fp_find_mapping(u16 syscall, u64 address, struct fp_syscall_target *target)
{
    struct fp_syscall_mapping key = {.address = address, .tgid = bpf_get_current_pid_tgid() >> 32};
    u32 *device = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_MAPPINGS_FD), &key);

    target->device = device ? *device : 0;
    target->row = fp_call_match(syscall, fp_device_class(target->device));
}

/* One value; returns record flags. args lies in a map, so that a variable index is allowed. */
static __always_inline u32 fp_slot(const struct fp_syscall_slot *slot, const u64 *args, u64 *value)
{
    u64 at = args[slot->argument & 7], read = 0;
    u64 size = slot->size;

    *value = 0;
    if (!slot->how)
        return 0;
    if (slot->how == FP_SLOT_RAW) {
        *value = at;
        return 0;
    }
    if (!at && slot->flags & FP_SLOT_NULLABLE)
        return 0;
    if (slot->how == FP_SLOT_VIA && bpf_probe_read_user(&at, 8, (void *)(at + slot->via)))
        return FP_READ_FAULT;
    if (!at && slot->flags & FP_SLOT_NULLABLE)
        return 0;
    /* The barrier keeps the bound that the verifier has to see. */
    asm volatile("" : "+r"(size));
    if (size > 8)
        return FP_READ_FAULT;
    if (bpf_probe_read_user(&read, size, (void *)(at + slot->offset)))
        return FP_READ_FAULT;
    *value = read;
    return 0;
}

/* Whether another copy of the program has seen this entry. */
static __always_inline bool fp_syscall_has_begun(u16 copy)
{
    u32 tid = (u32)bpf_get_current_pid_tgid();
    struct fp_syscall_state *state = copy ? bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid) : 0;

    if (!state || !state->copies)
        return false;
    state->copies = FP_SYSCALL_COPIES - 1 - copy;
    return true;
}

static __always_inline void fp_syscall_begin(u16 syscall, const struct fp_syscall_target *target, const u64 *args,
                                             u32 is_ioctl, u16 copy)
{
    u32 tid = (u32)bpf_get_current_pid_tgid();
    struct fp_syscall_row *row = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), target->row);
    struct fp_syscall_state fresh = {}, *state;
    u32 flags = FP_TASK;

    if (!row)
        return;
    fp_fill(&fresh.record.h, row->kind, FP_TASK);
    fresh.record.begin_ns = fresh.record.h.time_ns;
    fresh.record.function = row->function;
    fresh.record.fd = target->fd;
    fresh.record.device = target->device;
    fresh.row = *target->row;
    fresh.syscall = syscall;
    fresh.copies = FP_SYSCALL_COPIES - 1 - copy;
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        fresh.args[i] = args[i];
    if (is_ioctl) {
        fresh.record.command = args[1];
        fresh.record.argument = args[2];
    }
    if (bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid))
        fp_lost(row->kind, FP_STAGE_OVERWRITTEN);
    if (bpf_map_update_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid, &fresh, BPF_ANY)) {
        fp_lost(row->kind, FP_STAGE_MAP_FULL);
        return;
    }
    state = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid);
    if (!state)
        return;
#pragma unroll
    for (u32 i = 0; i < FP_SLOTS; i++)
        flags |= fp_slot(&row->before[i], state->args, &state->record.before[i]);
    state->record.h.flags = flags;
}

/* Remember a mapping that a call has made, or forget one that it has ended. */
static __always_inline void fp_follow_mapping(const struct fp_syscall_row *row, const struct fp_syscall_state *state,
                                              s64 status)
{
    struct fp_syscall_mapping key = {.tgid = bpf_get_current_pid_tgid() >> 32};
    u32 device = state->record.device;

    if (row->how & FP_ROW_MAPS && (status > 0 || status < -4095)) {
        key.address = status;
        if (bpf_map_update_elem(FP_MAP(FP_SYSCALL_MAPPINGS_FD), &key, &device, BPF_ANY))
            fp_lost(row->kind, FP_STAGE_MAP_FULL);
    } else if (row->how & FP_ROW_UNMAPS && !status) {
        key.address = state->args[7];
        bpf_map_delete_elem(FP_MAP(FP_SYSCALL_MAPPINGS_FD), &key);
    }
}

static __always_inline void fp_syscall_end(u16 syscall, s64 status)
{
    u32 tid = (u32)bpf_get_current_pid_tgid();
    struct fp_syscall_state *state = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid);
    struct fp_syscall_row *row;
    struct fp_syscall *record;
    u32 flags;

    if (!state || state->syscall != syscall)
        return;
    row = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), &state->row);
    if (row)
        fp_follow_mapping(row, state, status);
    record = row ? FP_RESERVE(struct fp_syscall, row->kind) : 0;
    if (!record) {
        bpf_map_delete_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid);
        return;
    }
    flags = state->record.h.flags;
    /* The size class's tail is none: the struct fills its class. */
    bpf_probe_read_kernel(record, sizeof(*record), &state->record);
    fp_fill(&record->h, row->kind, 0);
    record->status = status;
#pragma unroll
    for (u32 i = 0; i < FP_SLOTS; i++)
        flags |= fp_slot(&row->after[i], state->args, &record->after[i]);
    record->h.flags = flags;
    if (flags & FP_READ_FAULT)
        fp_lost(row->kind, FP_STAGE_READ_FAULT);
    bpf_map_delete_elem(FP_MAP(FP_SYSCALL_CALLS_FD), &tid);
    fp_submit(record);
}

/* One load at a constant offset from the unmodified context. */
#define FP_SYSCALL_LOAD(ctx, offset)                                                                                   \
    ({                                                                                                                 \
        u64 fp_v;                                                                                                      \
        asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(fp_v) : "r"(ctx), "i"(offset));                                   \
        fp_v;                                                                                                          \
    })

/*
 * `count` arguments at 16, 24, ...; reading past the event's own would keep the program from being attached. `from` says
 * what tells the device: the argument `which` as FP_DEVICE_* says.
 */
#define FP_SYSCALL_ENTER(name, copy, index, count, from, which, is_ioctl)                                              \
    int fp_enter_##copy##_##name(void *ctx)                                                                            \
    {                                                                                                                  \
        struct fp_syscall_target target = {.fd = -1};                                                                  \
        u64 args[8] = {};                                                                                              \
        if (!fp_is_target() || fp_syscall_has_begun(copy))                                                             \
            return 0;                                                                                                  \
        if (count > 0)                                                                                                 \
            args[0] = FP_SYSCALL_LOAD(ctx, 16);                                                                        \
        if (count > 1)                                                                                                 \
            args[1] = FP_SYSCALL_LOAD(ctx, (count > 1) ? 24 : 16);                                                     \
        if (count > 2)                                                                                                 \
            args[2] = FP_SYSCALL_LOAD(ctx, (count > 2) ? 32 : 16);                                                     \
        if (count > 3)                                                                                                 \
            args[3] = FP_SYSCALL_LOAD(ctx, (count > 3) ? 40 : 16);                                                     \
        if (count > 4)                                                                                                 \
            args[4] = FP_SYSCALL_LOAD(ctx, (count > 4) ? 48 : 16);                                                     \
        if (count > 5)                                                                                                 \
            args[5] = FP_SYSCALL_LOAD(ctx, (count > 5) ? 56 : 16);                                                     \
        if (from == FP_DEVICE_FD) {                                                                                    \
            fp_find_fd(index, is_ioctl, args[which], args, &target);                                                   \
        } else if (from == FP_DEVICE_FDS) {                                                                            \
            fp_find_in_array(index, args[which], args[(which) + 1], args, &target);                                    \
        } else if (from == FP_DEVICE_ADDRESS) {                                                                        \
            args[7] = args[which];                                                                                     \
            fp_find_mapping(index, args[which], &target);                                                              \
        } else {                                                                                                       \
            target.row = fp_call_match(index, 0);                                                                      \
        }                                                                                                              \
        if (target.row)                                                                                                \
            fp_syscall_begin(index, &target, args, is_ioctl, copy);                                                    \
        return 0;                                                                                                      \
    }

#define FP_SYSCALL_EXIT(name, copy, index)                                                                             \
    int fp_exit_##copy##_##name(void *ctx)                                                                             \
    {                                                                                                                  \
        fp_syscall_end(index, FP_SYSCALL_LOAD(ctx, 16));                                                               \
        return 0;                                                                                                      \
    }

#endif
