// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A kernel that takes a time: its parameter, a u64 of nanoseconds. The same PTX for a real GPU and the simulated one. */
#ifndef SIMCUDA_SPIN_H
#define SIMCUDA_SPIN_H

#define SPIN_HEAD ".version 6.4\n.target sm_75\n.address_size 64\n"
#define SPIN_ENTRY(name)                                                                                                 \
	".visible .entry " name "(.param .u64 duration_ns)\n"                                                            \
	"{\n"                                                                                                            \
	"\t.reg .pred %p<2>;\n"                                                                                          \
	"\t.reg .u64 %rd<5>;\n"                                                                                          \
	"\tld.param.u64 %rd1, [duration_ns];\n"                                                                          \
	"\tmov.u64 %rd2, %globaltimer;\n"                                                                                \
	"again:\n"                                                                                                       \
	"\tmov.u64 %rd3, %globaltimer;\n"                                                                                \
	"\tsub.u64 %rd4, %rd3, %rd2;\n"                                                                                  \
	"\tsetp.lt.u64 %p1, %rd4, %rd1;\n"                                                                               \
	"\t@%p1 bra again;\n"                                                                                            \
	"\tret;\n"                                                                                                       \
	"}\n"

#endif
