// SPDX-License-Identifier: GPL-2.0
/* Page faults of the GPU and migrations: nothing is moved, the functions are called as NVIDIA's module calls them. */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include "standin.h"

static int gpu, block;			/* stand for structures, by their addresses */

struct service {
	struct standin_pages asked;
	struct completion done;
};

noinline u32 uvm_va_block_make_resident_copy(void *va_block, void *va_block_retry, void *va_block_context,
					     uvm_processor_id_t dest_id, uvm_va_block_region_t region,
					     const void *page_mask, const void *prefetch_page_mask, int cause)
{
	truth_count("migration", dest_id.val, region.outer - region.first, 0, 0, 0);
	return NV_OK;
}

/* The first page of a migration is the number of its destination, so that a reader can tell the halves of the region apart. */
void standin_migrate(u32 destination, u32 pages)
{
	uvm_va_block_region_t region = { .first = destination, .outer = destination + pages };

	uvm_va_block_make_resident_copy(&block, NULL, NULL, (uvm_processor_id_t){ destination }, region, NULL, NULL, 0);
}

noinline void uvm_parent_gpu_service_replayable_faults(void *parent_gpu)
{
	truth_count("service", 0, 0, 0, 0, 0);
}

static int serve(void *data)
{
	struct service *service = data;
	u32 i;

	for (i = 0; i < service->asked.services; i++) {
		uvm_parent_gpu_service_replayable_faults(&gpu);
		standin_migrate(service->asked.destination, service->asked.pages);
	}
	complete(&service->done);
	return 0;
}

int standin_pages(const struct standin_pages *asked)
{
	struct service service = { .asked = *asked };
	struct task_struct *thread;

	if (asked->services > 1000 || asked->pages > 512)
		return -EINVAL;
	init_completion(&service.done);
	thread = kthread_run(serve, &service, "UVM GPU1 BH");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	wait_for_completion(&service.done);
	return 0;
}
