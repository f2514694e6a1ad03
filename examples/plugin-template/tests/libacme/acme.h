// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The API of libacme, a made-up accelerator. Every function returns 0, or a negative errno.
 */
#ifndef ACME_H
#define ACME_H

#include <stdint.h>

typedef struct acme_stream *acme_stream_t;

int acme_stream_create(acme_stream_t *out);
int acme_submit(acme_stream_t stream, uint32_t kernel, uint64_t bytes);
int acme_wait(acme_stream_t stream);
int acme_stream_destroy(acme_stream_t stream);

#endif
