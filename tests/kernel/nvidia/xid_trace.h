/* SPDX-License-Identifier: GPL-2.0 */
/* The tracepoint of an error as the driver's open flavour has it: kernel-open/nvidia/nv-tracepoint.h, 575.51.02 to 595.45.04. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nvidia

#if !defined(XID_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define XID_TRACE_H

#include <linux/tracepoint.h>

#ifdef HAVE_ASSIGN_STR_ALONE
#define assign_text(name, text) __assign_str(name)
#else
#define assign_text(name, text) __assign_str(name, text)
#endif

TRACE_EVENT(nvidia_dev_xid,
	TP_PROTO(const char *dev, u32 error_code, const char *msg),
	TP_ARGS(dev, error_code, msg),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u32, error_code)
		__string(msg, msg)
	),
	TP_fast_assign(
		assign_text(dev, dev);
		__entry->error_code = error_code;
		assign_text(msg, msg);
	),
	TP_printk("Xid (PCI:%s): %u, %s", __get_str(dev), __entry->error_code, __get_str(msg))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE xid_trace
#include <trace/define_trace.h>
