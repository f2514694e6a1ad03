// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * System calls, entry and return, told apart by the device behind their fd. fencepath.syscalls makes the source: this
 * header and one FP_SYSCALL_ENTER and FP_SYSCALL_EXIT for each system call that is traced.
 *
 * Macros given by -D, besides those of fencepath.h:
 *   FP_SYSCALL_MATCH_FD, _ROWS_FD, _DEVICES_FD, _CALLS_FD    maps
 *   FP_OFFSET_<STRUCT>_<MEMBER>                              offsets of kernel structures, from BTF
 */
#ifndef FENCEPATH_SYSCALLS_H
#define FENCEPATH_SYSCALLS_H

#include "fencepath.h"

#define FP_SLOTS 4
#define FP_SLOT_RAW 1
#define FP_SLOT_MEMORY 2
#define FP_SLOT_VIA 3

#define FP_MATCH_ALL 0
#define FP_MATCH_COMMAND 1
#define FP_MATCH_TYPE_NUMBER 2

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
};

struct fp_syscall_slot {
    u8 how;
    u8 argument;
    u8 size;
    u8 reserved;
    u16 offset;
    u16 via;
};

struct fp_syscall_row {
    u16 kind;
    u16 reserved;
    u32 function;
    struct fp_syscall_slot before[FP_SLOTS];
    struct fp_syscall_slot after[FP_SLOTS];
};

/* A call that has begun, by tid: a thread is in one system call at a time. Begins with its record, all that is known. */
struct fp_syscall_state {
    struct fp_syscall record;
    u32 row;
    u32 syscall;
    u64 args[8];
};

/* The character device behind an fd of the current task, from the kernel's own table: exact whatever was dup'ed. 0: none. */
static __always_inline u32 fp_device_of(u32 fd)
{
    u64 at = bpf_get_current_task(), table = 0, file = 0, inode = 0;
    u32 count = 0, device = 0;
    u16 mode = 0;

    if (bpf_probe_read_kernel(&at, 8, (void *)(at + FP_OFFSET_TASK_STRUCT_FILES)) || !at)
        return 0;
    if (bpf_probe_read_kernel(&table, 8, (void *)(at + FP_OFFSET_FILES_STRUCT_FDT)) || !table)
        return 0;
    bpf_probe_read_kernel(&count, 4, (void *)(table + FP_OFFSET_FDTABLE_MAX_FDS));
    if (fd >= count || bpf_probe_read_kernel(&at, 8, (void *)(table + FP_OFFSET_FDTABLE_FD)))
        return 0;
    if (bpf_probe_read_kernel(&file, 8, (void *)(at + 8 * (u64)fd)) || !file)
        return 0;
    if (bpf_probe_read_kernel(&inode, 8, (void *)(file + FP_OFFSET_FILE_F_INODE)) || !inode)
        return 0;
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

static __always_inline u32 *fp_syscall_match(u16 syscall, u8 class, u8 how, u32 what)
{
    struct fp_syscall_key key = {.syscall = syscall, .device_class = class, .how = how, .what = what};

    return bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_MATCH_FD), &key);
}

/* The row for an ioctl of a class: by the whole command, by type and number, or the one for all the rest. */
static __always_inline u32 *fp_ioctl_match(u16 syscall, u8 class, u32 command)
{
    u32 *row;

    if (!class)
        return 0;
    row = fp_syscall_match(syscall, class, FP_MATCH_COMMAND, command);
    if (!row)
        row = fp_syscall_match(syscall, class, FP_MATCH_TYPE_NUMBER, command & 0xffff);
    if (!row)
        row = fp_syscall_match(syscall, class, FP_MATCH_ALL, 0);
    return row;
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
    if (slot->how == FP_SLOT_VIA && bpf_probe_read_user(&at, 8, (void *)(at + slot->via)))
        return FP_READ_FAULT;
    /* The barrier keeps the bound that the verifier has to see. */
    asm volatile("" : "+r"(size));
    if (size > 8)
        return FP_READ_FAULT;
    if (bpf_probe_read_user(&read, size, (void *)(at + slot->offset)))
        return FP_READ_FAULT;
    *value = read;
    return 0;
}

static __always_inline void fp_syscall_begin(u16 syscall, u32 *row_index, const u64 *args, u32 count, s32 fd, u32 device,
                                             u32 is_ioctl)
{
    u32 tid = (u32)bpf_get_current_pid_tgid();
    struct fp_syscall_row *row = bpf_map_lookup_elem(FP_MAP(FP_SYSCALL_ROWS_FD), row_index);
    struct fp_syscall_state fresh = {}, *state;
    u32 flags = FP_TASK;

    if (!row)
        return;
    fp_fill(&fresh.record.h, row->kind, FP_TASK);
    fresh.record.begin_ns = fresh.record.h.time_ns;
    fresh.record.function = row->function;
    fresh.record.fd = fd;
    fresh.record.device = device;
    fresh.row = *row_index;
    fresh.syscall = syscall;
#pragma unroll
    for (u32 i = 0; i < 6; i++)
        if (i < count)
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

/* `count` arguments at 16, 24, ...; reading past the event's own would keep the program from being attached. */
#define FP_SYSCALL_ENTER(name, index, count, fd_argument, is_ioctl)                                                    \
    int fp_enter_##name(void *ctx)                                                                                     \
    {                                                                                                                  \
        u64 args[6] = {};                                                                                              \
        u32 device = 0, *row;                                                                                          \
        s32 fd = -1;                                                                                                   \
        u8 class = 0;                                                                                                  \
        if (!fp_is_target())                                                                                           \
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
        if (fd_argument >= 0) {                                                                                        \
            fd = args[(fd_argument) < 0 ? 0 : (fd_argument)];                                                          \
            device = fp_device_of(fd);                                                                                 \
            class = fp_device_class(device);                                                                           \
        }                                                                                                              \
        if (is_ioctl) {                                                                                                \
            row = fp_ioctl_match(index, class, args[1]);                                                               \
        } else {                                                                                                       \
            row = fp_syscall_match(index, class, FP_MATCH_ALL, 0);                                                     \
            if (!row && class)                                                                                         \
                row = fp_syscall_match(index, 0, FP_MATCH_ALL, 0);                                                     \
        }                                                                                                              \
        if (row)                                                                                                       \
            fp_syscall_begin(index, row, args, count, fd, device, is_ioctl);                                           \
        return 0;                                                                                                      \
    }

#define FP_SYSCALL_EXIT(name, index)                                                                                   \
    int fp_exit_##name(void *ctx)                                                                                      \
    {                                                                                                                  \
        fp_syscall_end(index, FP_SYSCALL_LOAD(ctx, 16));                                                               \
        return 0;                                                                                                      \
    }

#endif
