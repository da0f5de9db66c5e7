/*
 * Calls into DPDK, with plain numbers for arguments: its structures are made by macros.
 *
 * A key is `proto . . . source destination sport dport`, 16 bytes, numbers big-endian.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_memory.h>

enum { FIELDS = 5 };

RTE_ACL_RULE_DEF(acl_rule, FIELDS);

static const struct rte_acl_field_def fields[FIELDS] = {
	/* type, bytes, field, 4-byte word of the key, offset */
	{RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, 0},
	{RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, 4},
	{RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, 8},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, 12},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, 14},
};

/* Starts DPDK with tables on 2 MiB pages, or on pages of the usual size up to `mib`. */
int acl_start(bool huge_pages, unsigned mib)
{
	cpu_set_t allowed;
	char core[16], memory[16];
	int first = 0;

	/* DPDK binds the thread that starts it to a core; where it ran before is for the caller to say. */
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return -1;
	while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &allowed))
		first++;
	snprintf(core, sizeof(core), "%d", first);
	snprintf(memory, sizeof(memory), "%u", mib);
	char *huge[] = {"pktjit-bench", "-l", core, "--in-memory"};
	char *small[] = {"pktjit-bench", "-l", core, "--no-huge", "--no-shconf", "-m", memory};
	char *always[] = {"--no-pci", "--no-telemetry", "--log-level=1", "--force-max-simd-bitwidth=512"};
	char *arguments[16] = {0};
	int n = 0;

	for (size_t i = 0; huge_pages && i < RTE_DIM(huge); i++)
		arguments[n++] = huge[i];
	for (size_t i = 0; !huge_pages && i < RTE_DIM(small); i++)
		arguments[n++] = small[i];
	for (size_t i = 0; i < RTE_DIM(always); i++)
		arguments[n++] = always[i];
	int started = rte_eal_init(n, arguments);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	return started < 0 ? -1 : 0;
}

/* A context for so many rules, under a name that no other has. */
struct rte_acl_ctx *acl_new(unsigned number, unsigned rules)
{
	char name[RTE_ACL_NAMESIZE];
	struct rte_acl_param param = {
		.name = name,
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS),
		.max_rule_num = rules,
	};
	snprintf(name, sizeof(name), "list-%u", number);
	return rte_acl_create(&param);
}

/* Adds a rule: `value` and `length` are address and prefix length, or both ends of a range; for the protocol its mask. */
int acl_add(struct rte_acl_ctx *acl, unsigned result, int priority, const unsigned value[FIELDS],
	    const unsigned length[FIELDS])
{
	struct acl_rule rule;

	memset(&rule, 0, sizeof(rule));
	rule.data.userdata = result;
	rule.data.category_mask = 1;
	rule.data.priority = priority;
	for (int i = 0; i < FIELDS; i++) {
		rule.field[i].value.u32 = value[i];
		rule.field[i].mask_range.u32 = length[i];
	}
	return rte_acl_add_rules(acl, (const struct rte_acl_rule *)&rule, 1);
}

int acl_build(struct rte_acl_ctx *acl)
{
	struct rte_acl_config config;

	memset(&config, 0, sizeof(config));
	config.num_categories = 1;
	config.num_fields = FIELDS;
	memcpy(config.defs, fields, sizeof(fields));
	return rte_acl_build(acl, &config);
}

/* Whether this machine can run the algorithm. */
bool acl_offers(struct rte_acl_ctx *acl, int algorithm)
{
	return rte_acl_set_ctx_classify(acl, algorithm) == 0;
}

int acl_classify(const struct rte_acl_ctx *acl, const unsigned char **keys, unsigned *results, unsigned n, int algorithm)
{
	return rte_acl_classify_alg(acl, keys, results, n, 1, algorithm);
}

void acl_free(struct rte_acl_ctx *acl)
{
	rte_acl_free(acl);
}

/* Bytes that all contexts take together. */
unsigned long acl_bytes(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}
