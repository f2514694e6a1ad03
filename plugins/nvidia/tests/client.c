// SPDX-License-Identifier: Apache-2.0
/*
 * Plays a client of NVIDIA's driver on two other character devices, which refuse its requests, and says what it does: a line
 * "CALL kind label key=value ..." for each system call on them, in order, with what the recording must say of it.
 *
 *   client RM_DEVICE UVM_DEVICE            every request once, with descriptors that came in every way
 *   client RM_DEVICE UVM_DEVICE burst N    N commands as fast as it can
 *   client RM_DEVICE UVM_DEVICE hang       an ioctl whose memory never comes
 *
 * Waits for a line on standard input before it begins.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint32_t u32;
typedef uint64_t u64;

#define REQUEST(number, size) (3u << 30 | (u32)(size) << 16 | 'F' << 8 | (number))
#define CLIENT 0xc1d00007u

static char memory[16384];

static void put32(void *at, size_t offset, u32 value)
{
    memcpy((char *)at + offset, &value, 4);
}

static void put64(void *at, size_t offset, u64 value)
{
    memcpy((char *)at + offset, &value, 8);
}

static void *zeroed(void)
{
    return memset(memory, 0, sizeof(memory));
}

/* An ioctl that the device refuses. */
static void call(int fd, u32 command, void *argument)
{
    if (ioctl(fd, command, argument) != -1 || (errno != ENOTTY && errno != EINVAL && errno != EFAULT)) {
        fprintf(stderr, "request %#x was not refused: %s\n", command, strerror(errno));
        exit(1);
    }
}

/* NV_ESC_RM_ALLOC with rights; the status is where the driver would have put it. */
static void alloc(int fd, u32 handle, u32 class, void *parameters)
{
    put32(memory, 0, CLIENT);
    put32(memory, 4, 0xde01);
    put32(memory, 8, handle);
    put32(memory, 12, class);
    put64(memory, 16, (uintptr_t)parameters);
    put32(memory, 40, 0x1f);
    call(fd, REQUEST(0x2b, 48), memory);
}

static void objects(int fd)
{
    static char parameters[512];

    zeroed();
    alloc(fd, 0x5c01, 0x2080, 0);
    printf("CALL nvidia.alloc NV20_SUBDEVICE_0 client=%u parent=%u object=%u object_class=%u device_id=-1 engine=-1\n",
           CLIENT, 0xde01, 0x5c01, 0x2080);
    put32(parameters, 0, 3);
    alloc(fd, 0xde02, 0x80, parameters);
    printf("CALL nvidia.alloc NV01_DEVICE_0 object_class=%u device_id=3\n", 0x80);
    put32(parameters, 128, 10);
    alloc(fd, 0xcafe, 0xc86f, parameters);
    printf("CALL nvidia.alloc HOPPER_CHANNEL_GPFIFO_A engine=10\n");
    put64(parameters, 64, 6 << 20);
    alloc(fd, 0x40a1, 0x40, parameters);
    printf("CALL nvidia.memory.alloc NV01_MEMORY_LOCAL_USER object=%u object_class=%u size_bytes=%u\n", 0x40a1, 0x40, 6 << 20);
    alloc(fd, 0x3ea1, 0x3e, 0);
    printf("CALL nvidia.memory.alloc NV01_MEMORY_SYSTEM size_bytes=0\n");
    alloc(fd, 0x1, 0xbeef, (void *)8);
    printf("CALL nvidia.alloc class|0xbeef object_class=%u\n", 0xbeef);
    /* a layout that this version does not have */
    call(fd, REQUEST(0x2b, 40), memory);
    printf("CALL nvidia.ioctl NV_ESC_RM_ALLOC command=%u\n", REQUEST(0x2b, 40));

    put32(zeroed(), 8, 0x71);
    put32(memory, 12, 0x71);
    put64(memory, 32, 8191);
    call(fd, REQUEST(0x27, 56), memory);
    printf("CALL nvidia.memory.alloc NV01_MEMORY_SYSTEM_OS_DESCRIPTOR object=%u size_bytes=8192\n", 0x71);

    put32(zeroed(), 0, CLIENT);
    put32(memory, 8, 0x40a2);
    put32(memory, 12, CLIENT);
    put32(memory, 16, 0x40a1);
    call(fd, REQUEST(0x34, 28), memory);
    printf("CALL nvidia.dup NV_ESC_RM_DUP_OBJECT client=%u object=%u source_client=%u source_object=%u\n", CLIENT, 0x40a2,
           CLIENT, 0x40a1);
    put32(zeroed(), 0, CLIENT);
    put32(memory, 8, 0x40a2);
    call(fd, REQUEST(0x29, 16), memory);
    printf("CALL nvidia.free NV_ESC_RM_FREE client=%u object=%u\n", CLIENT, 0x40a2);
}

static void control(int fd, u32 command)
{
    put32(zeroed(), 0, CLIENT);
    put32(memory, 4, 0x5c01);
    put32(memory, 8, command);
    put32(memory, 24, 96);
    call(fd, REQUEST(0x2a, 32), memory);
}

static void carry(int fd, u32 number, u32 size, void *pointer)
{
    static char carrier[16];

    put32(carrier, 0, number);
    put32(carrier, 4, size);
    put64(carrier, 8, (uintptr_t)pointer);
    call(fd, REQUEST(211, 16), carrier);
}

static void requests(int fd)
{
    char version[72] = "";

    strcpy(version + 8, "580.159.04");
    call(fd, REQUEST(210, 72), version);
    printf("CALL nvidia.version NV_ESC_CHECK_VERSION_STR version=580.159.04\n");
    control(fd, 0x20800102);
    printf("CALL nvidia.control NV2080_CTRL_CMD_GPU_GET_INFO_V2 client=%u object=%u params_bytes=96\n", CLIENT, 0x5c01);
    control(fd, 0x20801234);
    printf("CALL nvidia.control class|0x2080|category|0x12|command|0x34 control=%u\n", 0x20801234);
    /* the same inside another request; unknown, in itself, with no number, unreadable */
    carry(fd, 0x2a, 32, memory);
    printf("CALL nvidia.control class|0x2080|category|0x12|command|0x34 object=%u\n", 0x5c01);
    carry(fd, 0x77, 8, memory);
    printf("CALL nvidia.ioctl ioctl|type|0x46|number|0x77 command=%u\n", REQUEST(0x77, 8));
    carry(fd, 211, 16, memory);
    printf("CALL nvidia.ioctl NV_ESC_IOCTL_XFER_CMD command=%u\n", REQUEST(211, 16));
    carry(fd, 0x12a, 32, memory);
    printf("CALL nvidia.ioctl NV_ESC_IOCTL_XFER_CMD command=%u\n", REQUEST(211, 16));
    call(fd, REQUEST(211, 16), (void *)8);
    printf("CALL nvidia.ioctl NV_ESC_IOCTL_XFER_CMD command=%u\n", REQUEST(211, 16));
    carry(fd, 0x2a, 32, (void *)16);
    printf("CALL nvidia.control NV_ESC_RM_CONTROL control=0 faulty=1\n");

    put64(zeroed(), 24, 1 << 20);
    put64(memory, 48, 0x7f1200000000);
    call(fd, REQUEST(0x57, 64), memory);
    printf("CALL nvidia.map NV_ESC_RM_MAP_MEMORY_DMA length_bytes=%u address=%lu\n", 1 << 20, 0x7f1200000000);
    put64(memory, 16, 0x7f1300000000);
    call(fd, REQUEST(0x4f, 32), memory);
    printf("CALL nvidia.unmap NV_ESC_RM_UNMAP_MEMORY address=%lu\n", 0x7f1300000000);
    put32(zeroed(), 8, 29);
    call(fd, REQUEST(206, 16), memory);
    printf("CALL nvidia.os_event NV_ESC_ALLOC_OS_EVENT event_fd=29\n");
    put32(memory, 0, 11);
    call(fd, REQUEST(201, 4), memory);
    printf("CALL nvidia.ioctl NV_ESC_REGISTER_FD value=11\n");
    call(fd, REQUEST(200, 72 * 3), memory);
    printf("CALL nvidia.ioctl NV_ESC_CARD_INFO command=%u\n", REQUEST(200, 72 * 3));
    call(fd, REQUEST(0x5f, 24), memory);
    printf("CALL nvidia.ioctl ioctl|type|0x46|number|0x5f\n");
    /* sizes that no version has */
    call(fd, REQUEST(0x2a, 33), memory);
    printf("CALL nvidia.ioctl NV_ESC_RM_CONTROL value=0\n");
    call(fd, REQUEST(0x29, 0), memory);
    printf("CALL nvidia.ioctl NV_ESC_RM_FREE command=%u\n", REQUEST(0x29, 0));
    call(fd, 'x' << 8 | 1, memory);
    printf("CALL nvidia.ioctl ioctl|type|0x78|number|0x01\n");
    call(fd, REQUEST(0x2a, 32), (void *)8);
    printf("CALL nvidia.control NV_ESC_RM_CONTROL faulty=1\n");
}

static void uvm(int fd)
{
    put64(zeroed(), 0, 0x7f4400000000);
    put64(memory, 8, 32 << 20);
    memset(memory + 16, 0x5a, 16);
    call(fd, 51, memory);
    printf("CALL nvidia.uvm.range UVM_MIGRATE address=%lu length_bytes=%u gpu=GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a\n",
           0x7f4400000000, 32 << 20);
    put32(memory, 9252, CLIENT);
    put32(memory, 9256, 0x40a1);
    call(fd, 33, memory);
    printf("CALL nvidia.uvm.range UVM_MAP_EXTERNAL_ALLOCATION client=%u object=%u\n", CLIENT, 0x40a1);
    call(fd, 0x30000001, memory);
    printf("CALL nvidia.uvm.call UVM_INITIALIZE command=%u\n", 0x30000001);
    call(fd, 4242, memory);
    printf("CALL nvidia.uvm.call uvm|ioctl|4242 command=4242\n");
}

static void pass(int socket, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    if (sendmsg(socket, &message, 0) != 1)
        exit(1);
}

static int passed(int socket)
{
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    int fd;

    if (recvmsg(socket, &message, 0) != 1)
        exit(1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static void descriptors(const char *device, int fd)
{
    const char *names[] = {"NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", "NV0000_CTRL_CMD_GPU_GET_ID_INFO",
                           "class|0x0000|category|0x02|command|0x03"};
    int pair[2], copies[3], number, status, child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        exit(1);
    pass(pair[0], fd);
    copies[0] = dup(fd);
    copies[1] = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    copies[2] = passed(pair[1]);
    for (int i = 0; i < 3; i++) {
        control(copies[i], 0x201 + i);
        printf("CALL nvidia.control %s control=%u fd=%d\n", names[i], 0x201 + i, copies[i]);
    }
    fflush(stdout);
    child = fork();
    if (!child) {
        control(fd, 0x2080110b);
        _exit(0);
    }
    wait(&status);
    printf("CALL nvidia.control NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS fd=%d tgid=%d\n", fd, child);
    /* a number that is the device's, another file's, and the device's again */
    number = copies[0];
    close(number);
    printf("CALL nvidia.close close fd=%d\n", number);
    if (open("/dev/full", O_RDWR) != number)
        exit(1);
    call(number, REQUEST(0x2a, 32), memory);
    close(number);
    if (open(device, O_RDONLY) != number)
        exit(1);
    control(number, 0x0202);
    printf("CALL nvidia.control NV0000_CTRL_CMD_GPU_GET_ID_INFO fd=%d\n", number);
}

static void waits(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN}, three[3] = {{.fd = -1}, {.fd = 1}, {.fd = fd, .events = POLLIN | POLLPRI}};
    struct timespec time = {.tv_sec = 1, .tv_nsec = 7};
    int ready = poll(&one, 1, 250);

    printf("CALL nvidia.poll poll fd=%d count=1 timeout_ns=250000000 events=1 revents=%d status=%d\n", fd, one.revents, ready);
    ready = poll(three, 3, -1);
    printf("CALL nvidia.poll poll fd=%d count=3 timeout_ns=-1 events=3 revents=%d status=%d\n", fd, three[2].revents, ready);
    ready = ppoll(&one, 1, &time, 0);
    printf("CALL nvidia.poll ppoll fd=%d timeout_ns=1000000007 status=%d\n", fd, ready);
    ready = ppoll(&one, 1, 0, 0);
    printf("CALL nvidia.poll ppoll timeout_ns=-1 status=%d\n", ready);
    /* none of the device's */
    three[2].fd = 2;
    poll(three, 3, 0);
}

static void mappings(int uvm_fd)
{
    void *at = mmap(0, 3 << 12, PROT_READ, MAP_PRIVATE, uvm_fd, 0), *other;

    printf("CALL nvidia.mmap mmap address=%lu length_bytes=%u protection=1 offset=0 status=%lu\n", (u64)at, 3 << 12, (u64)at);
    other = mmap(0, 1 << 12, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(other, 1 << 12);
    munmap(at, 3 << 12);
    printf("CALL nvidia.munmap munmap address=%lu length_bytes=%u fd=-1 status=0\n", (u64)at, 3 << 12);
    munmap(at, 3 << 12);
}

/* An ioctl that writes to memory whose page nobody brings. */
static void hang(int fd)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    range.range.start = (u64)page;
    range.range.len = 4096;
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
        exit(1);
    printf("hangs\n");
    fflush(stdout);
    /* RNDGETENTCNT */
    ioctl(fd, 0x80045200, page);
}

int main(int count, char **words)
{
    int rm, uvm_fd, number;

    if (count < 3 || getchar() == EOF)
        return 2;
    rm = open(words[1], O_RDONLY);
    uvm_fd = open(words[2], O_RDONLY);
    if (rm < 0 || uvm_fd < 0)
        return 2;
    if (count > 3 && !strcmp(words[3], "hang")) {
        hang(rm);
        return 0;
    }
    if (count > 4 && !strcmp(words[3], "burst")) {
        for (number = 0; number < atoi(words[4]); number++)
            control(rm, number);
        return 0;
    }
    objects(rm);
    requests(rm);
    uvm(uvm_fd);
    descriptors(words[1], rm);
    waits(rm);
    mappings(uvm_fd);
    close(uvm_fd);
    printf("CALL nvidia.close close fd=%d\n", uvm_fd);
    return 0;
}
