// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Doorbells: signals that libacme sends to the threads that play its devices.
 *
 * fp_records.h has the struct of each layout in events.py. fp_tracepoints.h has an accessor for each field that plugin.py
 * takes, FP_FIELD_<event>_<field>(ctx), named after the preferred event wherever the field comes from, and FP_HAS_... that
 * says whether this kernel gives it.
 *
 * Macros given by -D:
 *   ACME_DOORBELL    number of the signal
 */
#include "fp_records.h"
#include "fp_tracepoints.h"

/* include/uapi/asm-generic/siginfo.h: sent by tgkill(2), which pthread_kill(3) calls. */
#define SI_TKILL (-6)

int on_doorbell(void *ctx) {
    struct fp_acme_doorbell *r;

    if (FP_FIELD_signal_generate_signal(ctx) != ACME_DOORBELL || !fp_is_target())
        return 0;
#if FP_HAS_signal_generate_code
    /*
     * Interrupts send signals as well, and the current task is then whoever was interrupted. Only a thread calls tgkill(2),
     * so this is what makes FP_TASK below true.
     */
    if (FP_FIELD_signal_generate_code(ctx) != SI_TKILL)
        return 0;
#endif
    r = FP_RESERVE(struct fp_acme_doorbell, FP_KIND_ACME_DOORBELL);
    if (!r)
        return 0;
    fp_fill(&r->h, FP_KIND_ACME_DOORBELL, FP_TASK);
    r->device_tid = FP_FIELD_signal_generate_device_tid(ctx);
    r->delivery = FP_FIELD_signal_generate_delivery(ctx);
    fp_submit(r);
    return 0;
}
