// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Marks for C and C++: how a server tells fencepath which request it is working for.
 *
 * A mark is one system call that every Linux kernel refuses at once, prctl(0x46504d4b, 1, &mark, 64, 0). A recording
 * reads it on its way in; without a recording nothing happens. One header, nothing to link, thread safe, and errno is
 * kept. The same marks as fencepath.mark makes in Python; functions of the same name mean the same.
 *
 *     uint64_t request = fencepath_request_begin("req-1", NULL, NULL, 0);
 *     fencepath_phase_begin(request, FENCEPATH_PHASE_PREFILL);
 *     ...
 *     fencepath_token(request, 1);
 *     fencepath_request_end(request);
 *
 * Elsewhere than on Linux, with FENCEPATH_MARKS=0 in the environment when the first mark is made, or once the call was
 * answered with anything but EINVAL (a seccomp filter), marks do nothing; fencepath_marks_enabled() says so.
 * Needs C99 or C++11, and POSIX names if compiled with a strict -std.
 */
#ifndef FENCEPATH_MARK_H
#define FENCEPATH_MARK_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FENCEPATH_MARK_OPTION 0x46504d4b /* "FPMK"; no kernel has an option of this number */
#define FENCEPATH_MARK_VERSION 1
#define FENCEPATH_MARK_TEXT_BYTES 255 /* of an id or an attribute */
#define FENCEPATH_MARK_MEMBERS 512    /* in one mark; fencepath_step_begin makes as many marks as it takes */

enum fencepath_mark_op {
	FENCEPATH_OP_REQUEST_BEGIN = 1,
	FENCEPATH_OP_REQUEST_END = 2,
	FENCEPATH_OP_STEP_BEGIN = 3,
	FENCEPATH_OP_STEP_END = 4,
	FENCEPATH_OP_STEP_MEMBERS = 5,
	FENCEPATH_OP_PHASE_BEGIN = 6,
	FENCEPATH_OP_PHASE_END = 7,
	FENCEPATH_OP_TOKEN = 8,
	FENCEPATH_OP_BIND = 9,
	FENCEPATH_OP_UNBIND = 10,
	FENCEPATH_OP_SEND = 11,
	FENCEPATH_OP_RECEIVE = 12,
	FENCEPATH_OP_ATTRIBUTE = 13
};

enum fencepath_phase {
	FENCEPATH_PHASE_NONE = 0,
	FENCEPATH_PHASE_QUEUE = 1,
	FENCEPATH_PHASE_PREFILL = 2,
	FENCEPATH_PHASE_DECODE = 3
};

struct fencepath_mark_v1 {
	uint16_t op, flags;
	uint32_t value;
	uint64_t request, step;
	uint8_t trace_id[16], span_id[8];
	uint8_t trace_flags, phase;
	uint16_t len;
	uint32_t reserved;
	uint64_t ptr;
};

/* One request's part in a step. */
struct fencepath_member {
	uint64_t request;
	uint32_t tokens; /* in this step */
	uint8_t phase;   /* enum fencepath_phase */
	uint8_t pad[3];  /* 0 */
};

/* An array of negative size is an error in every dialect. */
typedef char fencepath_mark_is_64_bytes[sizeof(struct fencepath_mark_v1) == 64 ? 1 : -1];
typedef char fencepath_mark_ptr_is_last[offsetof(struct fencepath_mark_v1, ptr) == 56 ? 1 : -1];
typedef char fencepath_member_is_16_bytes[sizeof(struct fencepath_member) == 16 ? 1 : -1];

/* BLAKE2b with a digest of 8 bytes and no key (RFC 7693). */

static inline uint64_t fencepath_rotate_(uint64_t word, unsigned bits)
{
	return word >> bits | word << (64 - bits);
}

static inline void fencepath_mix_(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = fencepath_rotate_(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = fencepath_rotate_(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = fencepath_rotate_(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = fencepath_rotate_(v[b] ^ v[c], 63);
}

static inline void fencepath_compress_(uint64_t *h, const uint64_t *iv, const uint8_t *block, uint64_t counter, int last)
{
	static const uint8_t sigma[10][16] = {
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
		{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
		{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
		{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
		{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
		{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
		{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
		{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
		{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
	};
	uint64_t v[16], m[16];
	int i, round;

	for (i = 0; i < 16; i++) {
		int byte;

		m[i] = 0;
		for (byte = 7; byte >= 0; byte--)
			m[i] = m[i] << 8 | block[8 * i + byte];
		v[i] = i < 8 ? h[i] : iv[i - 8];
	}
	v[12] ^= counter;
	if (last)
		v[14] = ~v[14];
	for (round = 0; round < 12; round++) {
		const uint8_t *s = sigma[round % 10];

		for (i = 0; i < 4; i++)
			fencepath_mix_(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
		for (i = 0; i < 4; i++)
			fencepath_mix_(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, m[s[2 * i + 8]],
				       m[s[2 * i + 9]]);
	}
	for (i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[i + 8];
}

/* The 64 bits that stand for these bytes in every mark: BLAKE2b-64, read as little-endian. */
static inline uint64_t fencepath_mark_hash(const void *bytes, size_t size)
{
	static const uint64_t iv[8] = {
		0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
		0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL,
	};
	const uint8_t *data = (const uint8_t *)bytes;
	uint8_t block[128];
	uint64_t h[8], done = 0;

	memcpy(h, iv, sizeof(h));
	h[0] ^= 0x01010000 ^ 8; /* fan-out 1, depth 1, no key, digest of 8 bytes */
	for (; size - done > 128; data += 128) {
		done += 128;
		fencepath_compress_(h, iv, data, done, 0);
	}
	memset(block, 0, sizeof(block));
	if (size > done)
		memcpy(block, data, size - done);
	fencepath_compress_(h, iv, block, size, 1);
	return h[0];
}

/* The request number of an id: what fencepath_request_begin returns and request_id_hash gives in Python. */
static inline uint64_t fencepath_mark_id(const char *id)
{
	return fencepath_mark_hash(id, strlen(id));
}

/* The system call. */

/* 0 not asked yet, 1 on, 2 off. A race repeats the same answer. */
static inline int *fencepath_mark_state_(void)
{
	static int state;

	return &state;
}

/* 1 if marks reach the kernel, as far as can be known: whether anybody listens cannot. */
static inline int fencepath_marks_enabled(void)
{
	int *state = fencepath_mark_state_(), now = __atomic_load_n(state, __ATOMIC_RELAXED);

	if (now == 0) {
#ifdef __linux__
		const char *wish = getenv("FENCEPATH_MARKS");

		now = wish && strcmp(wish, "0") == 0 ? 2 : 1;
#else
		now = 2;
#endif
		__atomic_store_n(state, now, __ATOMIC_RELAXED);
	}
	return now == 1;
}

/* Sends a mark made by hand; the functions below make them. Bytes at mark->ptr must have been touched (read or written):
 * a BPF program cannot wait for a page. */
static inline void fencepath_mark_send(const struct fencepath_mark_v1 *mark)
{
#ifdef __linux__
	int saved = errno;

	if (!fencepath_marks_enabled())
		return;
	if (prctl(FENCEPATH_MARK_OPTION, (unsigned long)FENCEPATH_MARK_VERSION, (unsigned long)(uintptr_t)mark,
		  (unsigned long)sizeof(*mark), 0UL) != -1 ||
	    errno != EINVAL) {
		if (__atomic_exchange_n(fencepath_mark_state_(), 2, __ATOMIC_RELAXED) == 1)
			fprintf(stderr,
				"fencepath: marks are not recorded: prctl(0x%x) was answered with errno %d instead of EINVAL, so a"
				" seccomp filter hides it; allow prctl in it, or set FENCEPATH_MARKS=0\n",
				FENCEPATH_MARK_OPTION, errno);
	}
	errno = saved;
#else
	(void)mark;
#endif
}

static inline void fencepath_emit_(int op, uint64_t request, uint64_t step, uint32_t value, int phase)
{
	struct fencepath_mark_v1 mark;

	memset(&mark, 0, sizeof(mark));
	mark.op = (uint16_t)op;
	mark.request = request;
	mark.step = step;
	mark.value = value;
	mark.phase = (uint8_t)phase;
	fencepath_mark_send(&mark);
}

/* Cuts UTF-8 at a character's end. */
static inline size_t fencepath_cut_(const char *text, size_t size, size_t limit)
{
	if (size <= limit)
		return size;
	while (limit > 0 && ((unsigned char)text[limit] & 0xc0) == 0x80)
		limit--;
	return limit;
}

/* Requests. trace_id (16 bytes) and span_id (8 bytes) are in the order of their hex digits; NULL if there are none.
 * An id of more than 255 bytes is recorded as its first 238, '~' and the 16 hex digits of its hash. */

static inline uint64_t fencepath_request_begin(const char *id, const uint8_t *trace_id, const uint8_t *span_id,
					       uint8_t trace_flags)
{
	struct fencepath_mark_v1 mark;
	char text[FENCEPATH_MARK_TEXT_BYTES + 1];
	size_t size = strlen(id);

	memset(&mark, 0, sizeof(mark));
	mark.op = FENCEPATH_OP_REQUEST_BEGIN;
	mark.request = fencepath_mark_hash(id, size);
	mark.trace_flags = trace_flags;
	if (trace_id)
		memcpy(mark.trace_id, trace_id, sizeof(mark.trace_id));
	if (span_id)
		memcpy(mark.span_id, span_id, sizeof(mark.span_id));
	if (size > FENCEPATH_MARK_TEXT_BYTES) {
		size = fencepath_cut_(id, size, FENCEPATH_MARK_TEXT_BYTES - 17);
		memcpy(text, id, size);
		size += (size_t)snprintf(text + size, sizeof(text) - size, "~%016llx", (unsigned long long)mark.request);
		id = text;
	}
	mark.len = (uint16_t)size;
	mark.ptr = (uint64_t)(uintptr_t)id;
	fencepath_mark_send(&mark);
	return mark.request;
}

static inline void fencepath_request_end(uint64_t request)
{
	fencepath_emit_(FENCEPATH_OP_REQUEST_END, request, 0, 0, 0);
}

/* From now on the calling thread works for this request only, in place of any it was bound to. */
static inline void fencepath_bind_thread(uint64_t request)
{
	fencepath_emit_(FENCEPATH_OP_BIND, request, 0, 0, 0);
}

static inline void fencepath_unbind_thread(uint64_t request)
{
	fencepath_emit_(FENCEPATH_OP_UNBIND, request, 0, 0, 0);
}

static inline void fencepath_phase_begin(uint64_t request, enum fencepath_phase phase)
{
	fencepath_emit_(FENCEPATH_OP_PHASE_BEGIN, request, 0, 0, phase);
}

static inline void fencepath_phase_end(uint64_t request, enum fencepath_phase phase)
{
	fencepath_emit_(FENCEPATH_OP_PHASE_END, request, 0, 0, phase);
}

/* index: number of the token in the answer, from 1. */
static inline void fencepath_token(uint64_t request, uint32_t index)
{
	fencepath_emit_(FENCEPATH_OP_TOKEN, request, 0, index, 0);
}

/* Recorded as "key=value"; what goes beyond 255 bytes is cut off. */
static inline void fencepath_attribute(uint64_t request, const char *key, const char *value)
{
	struct fencepath_mark_v1 mark;
	char text[2 * FENCEPATH_MARK_TEXT_BYTES];
	int size = snprintf(text, sizeof(text), "%.127s=%.382s", key, value);

	memset(&mark, 0, sizeof(mark));
	mark.op = FENCEPATH_OP_ATTRIBUTE;
	mark.request = request;
	mark.len = (uint16_t)fencepath_cut_(text, size > 0 ? (size_t)size : 0, FENCEPATH_MARK_TEXT_BYTES);
	mark.ptr = (uint64_t)(uintptr_t)text;
	fencepath_mark_send(&mark);
}

/* Steps: one forward pass, and the requests it serves. step is unique in the process while it lasts. */

static inline void fencepath_step_begin(uint64_t step, const struct fencepath_member *members, size_t count)
{
	struct fencepath_mark_v1 mark;
	volatile uint64_t touched = 0;
	size_t i;

	fencepath_emit_(FENCEPATH_OP_STEP_BEGIN, 0, step, 0, 0);
	for (i = 0; i < count; i++)
		touched = members[i].request + members[i].phase;
	(void)touched;
	for (i = 0; i < count; i += FENCEPATH_MARK_MEMBERS) {
		memset(&mark, 0, sizeof(mark));
		mark.op = FENCEPATH_OP_STEP_MEMBERS;
		mark.step = step;
		mark.value = (uint32_t)(count - i < FENCEPATH_MARK_MEMBERS ? count - i : FENCEPATH_MARK_MEMBERS);
		mark.ptr = (uint64_t)(uintptr_t)(members + i);
		fencepath_mark_send(&mark);
	}
}

static inline void fencepath_step_end(uint64_t step)
{
	fencepath_emit_(FENCEPATH_OP_STEP_END, 0, step, 0, 0);
}

/* Hand-overs: send before the other side can take the work, and pass the same number to its receive. */

static inline void fencepath_send(uint64_t handover, uint64_t request)
{
	fencepath_emit_(FENCEPATH_OP_SEND, request, handover, 0, 0);
}

static inline void fencepath_receive(uint64_t handover, uint64_t request)
{
	fencepath_emit_(FENCEPATH_OP_RECEIVE, request, handover, 0, 0);
}

#ifdef __cplusplus
}
#endif

#endif
