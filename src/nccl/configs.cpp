#include "src/nccl/configs.hpp"

#include "src/nccl/process.hpp"

namespace weft::internal::nccl {
namespace {

constexpr int undefined = NCCL_CONFIG_UNDEF_INT, most_blocks = 64;
// Published for H100: copies by registers reach 323 GB/s with 24 multiprocessors, and 343 with all.
constexpr int efficient_blocks = 24;

// The numbers of a config. `since`: the version that added the field; an older caller's struct has padding there, or
// nothing.
struct Field {
    const char* name;
    int ncclConfig_t::*value;
    unsigned since;
    bool used = false;  // weftConfig_t has a counterpart
};
constexpr Field fields[] = {
    {"blocking", &ncclConfig_t::blocking, 21400, true},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700},
    {"minCTAs", &ncclConfig_t::minCTAs, 21700, true},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 21700, true},
    {"splitShare", &ncclConfig_t::splitShare, 21800},
    {"trafficClass", &ncclConfig_t::trafficClass, 22500},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 22700},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, true},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 22700},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800},
    {"graphUsageMode", &ncclConfig_t::graphUsageMode, WEFT_NCCL_2_30},
    {"numRmaCtx", &ncclConfig_t::numRmaCtx, WEFT_NCCL_2_30},
    {"maxP2pPeers", &ncclConfig_t::maxP2pPeers, WEFT_NCCL_2_30},
    {"graphStreamOrdering", &ncclConfig_t::graphStreamOrdering, WEFT_NCCL_2_30},
    {"launchOrderImplicit", &ncclConfig_t::launchOrderImplicit, WEFT_NCCL_2_31, true},
    {"numRmaSig", &ncclConfig_t::numRmaSig, WEFT_NCCL_2_31},
    {"rmaEagerInit", &ncclConfig_t::rmaEagerInit, WEFT_NCCL_2_31},
    {"hostCftMode", &ncclConfig_t::hostCftMode, WEFT_NCCL_2_31},
    {"nvlsHostMode", &ncclConfig_t::nvlsHostMode, WEFT_NCCL_2_31},
};
// The version that added netName, and the one that added commName.
constexpr unsigned net_name_since = 21700, comm_name_since = 22700;

// The fields of the caller's version; all others are undefined. False: the struct was not initialised.
bool read_fields(const ncclConfig_t& given, ncclConfig_t& known) {
    std::memset(static_cast<void*>(&known), 0, sizeof known);
    for (const Field& field : fields) known.*field.value = undefined;
    if (!read_struct(given, NCCL_API_MAGIC, known)) return false;
    for (const Field& field : fields)
        if (known.version < field.since) known.*field.value = undefined;
    if (known.version < net_name_since) known.netName = nullptr;
    if (known.version < comm_name_since) known.commName = nullptr;
    return true;
}

// The fields that the caller has set and weftConfig_t lacks.
std::string ignored_fields(const ncclConfig_t& config) {
    std::string names = config.netName ? "netName" : "";
    for (const Field& field : fields)
        if (!field.used && config.*field.value != undefined)
            names += (names.empty() ? "" : ", ") + std::string(field.name);
    return names;
}

// The numbers of blocks that minCTAs, maxCTAs and CTAPolicy ask for. Weft's kernels have 64 blocks at most, so larger
// numbers ask for those. The limit of a policy gives way to maxCTAs.
ncclResult_t read_blocks(const char* function, int least, int most, int policy, BlockNumbers& blocks) {
    for (const auto& [name, number] : {std::pair("minCTAs", least), {"maxCTAs", most}})
        if (number != undefined && number < 1)
            return refuse(ncclInvalidArgument, function,
                          std::string("config.") + name + " is " + std::to_string(number) + "; it must be positive");
    if (most != undefined && least > most)
        return refuse(ncclInvalidArgument, function,
                      "config.minCTAs is " + std::to_string(least) + ", more than config.maxCTAs, which is " +
                          std::to_string(most));
    constexpr int all_policies = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
    if (policy != undefined && (policy & ~all_policies) != 0)
        return refuse(ncclInvalidArgument, function,
                      "config.CTAPolicy is " + std::to_string(policy) +
                          "; it is made of NCCL_CTA_POLICY_EFFICIENCY (1) and NCCL_CTA_POLICY_ZERO (2)");
    if (policy != undefined)
        blocks.policy = (policy & NCCL_CTA_POLICY_ZERO) != 0 ? WEFT_BLOCK_POLICY_ZERO : WEFT_BLOCK_POLICY_DEFAULT;
    if (most == undefined && policy != undefined && policy != NCCL_CTA_POLICY_DEFAULT)
        most = std::max(efficient_blocks, least);
    if (least != undefined) blocks.least = std::min(least, most_blocks);
    if (most != undefined) blocks.most = std::min(most, most_blocks);
    return ncclSuccess;
}

}  // namespace

ncclResult_t read_config(const char* function, const ncclConfig_t& given, weftConfig_t& config) {
    ncclConfig_t known;
    if (!read_fields(given, known))
        return refuse(ncclInvalidArgument, function, "config was not initialised by NCCL_CONFIG_INITIALIZER");
    config = WEFT_CONFIG_INITIALIZER;
    if (known.blocking != undefined) config.blocking = known.blocking;
    config.commName = known.commName;
    if (known.launchOrderImplicit != undefined) config.launchOrderImplicit = known.launchOrderImplicit;
    BlockNumbers blocks;
    if (const ncclResult_t read = read_blocks(function, known.minCTAs, known.maxCTAs, known.CTAPolicy, blocks);
        read != ncclSuccess)
        return read;
    config.minBlocks = blocks.least;
    config.maxBlocks = blocks.most;
    config.blockPolicy = blocks.policy;
    if (const std::string names = ignored_fields(known); !names.empty())
        log_info(std::string(function) + ": fields of the config that Weft does not have are ignored: " + names);
    return ncclSuccess;
}

ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given, ncclCollConfig_t& known,
                              BlockNumbers& blocks) {
    std::memset(&known, 0, sizeof known);
    known.forceAlgSelection = 1;
    known.minCTAs = known.maxCTAs = known.CTAPolicy = undefined;
    if (!read_struct(given, NCCL_API_MAGIC, known))
        return refuse(ncclInvalidArgument, function, "config was not initialised by NCCL_COLLCONFIG_INITIALIZER");
    if (known.version < WEFT_NCCL_2_32) known.launchCompletionEvent = nullptr;
    if (known.launchCompletionEvent)
        return refuse(
            ncclInvalidUsage, function,
            "Weft does not record config.launchCompletionEvent: record an event on the stream after the call");
    // A struct of zeros asks for nothing.
    const auto given_or_not = [](int number) { return number == 0 ? undefined : number; };
    return read_blocks(function, given_or_not(known.minCTAs), given_or_not(known.maxCTAs),
                       given_or_not(known.CTAPolicy), blocks);
}

}  // namespace weft::internal::nccl
