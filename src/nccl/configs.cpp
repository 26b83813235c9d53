#include "src/nccl/configs.hpp"

#include "src/nccl/process.hpp"

namespace weft::internal::nccl {
namespace {

constexpr int undefined = NCCL_CONFIG_UNDEF_INT;

ncclConfig_t default_config() {
    ncclConfig_t config;
    std::memset(&config, 0, sizeof config);
    for (int* field : {&config.blocking,
                       &config.cgaClusterSize,
                       &config.minCTAs,
                       &config.maxCTAs,
                       &config.splitShare,
                       &config.trafficClass,
                       &config.collnetEnable,
                       &config.CTAPolicy,
                       &config.shrinkShare,
                       &config.nvlsCTAs,
                       &config.nChannelsPerNetPeer,
                       &config.nvlinkCentricSched,
                       &config.graphUsageMode,
                       &config.numRmaCtx,
                       &config.maxP2pPeers,
                       &config.graphStreamOrdering,
                       &config.launchOrderImplicit,
                       &config.numRmaSig,
                       &config.rmaEagerInit,
                       &config.hostCftMode,
                       &config.nvlsHostMode})
        *field = undefined;
    return config;
}

// The fields without a counterpart in weftConfig_t.
std::string ignored_fields(const ncclConfig_t& config) {
    const struct {
        const char* name;
        int value;
    } fields[] = {
#define FIELD(name) {#name, config.name}
        FIELD(cgaClusterSize),
        FIELD(minCTAs),
        FIELD(maxCTAs),
        FIELD(splitShare),
        FIELD(trafficClass),
        FIELD(collnetEnable),
        FIELD(CTAPolicy),
        FIELD(shrinkShare),
        FIELD(nvlsCTAs),
        FIELD(graphUsageMode),
        FIELD(numRmaCtx),
        FIELD(maxP2pPeers),
        FIELD(nChannelsPerNetPeer),
        FIELD(hostCftMode),
        FIELD(numRmaSig),
        FIELD(rmaEagerInit),
        FIELD(launchOrderImplicit),
        FIELD(nvlsHostMode),
        FIELD(nvlinkCentricSched),
        FIELD(graphStreamOrdering),
#undef FIELD
    };
    std::string names = config.netName ? "netName" : "";
    for (const auto& field : fields)
        if (field.value != undefined) names += (names.empty() ? "" : ", ") + std::string(field.name);
    return names;
}

}  // namespace

ncclResult_t read_config(const char* function, const ncclConfig_t& given, weftConfig_t& config) {
    ncclConfig_t known = default_config();
    if (!read_struct(given, NCCL_API_MAGIC, known))
        return refuse(ncclInvalidArgument, function, "config was not initialised by NCCL_CONFIG_INITIALIZER");
    const ncclConfig_t defaults = default_config();
    if (known.version < WEFT_NCCL_2_30) {
        known.graphUsageMode = defaults.graphUsageMode;
        known.numRmaCtx = defaults.numRmaCtx;
        known.maxP2pPeers = defaults.maxP2pPeers;
        known.graphStreamOrdering = defaults.graphStreamOrdering;
    }
    if (known.version < WEFT_NCCL_2_31) {
        known.launchOrderImplicit = defaults.launchOrderImplicit;
        known.numRmaSig = defaults.numRmaSig;
        known.rmaEagerInit = defaults.rmaEagerInit;
        known.hostCftMode = defaults.hostCftMode;
        known.nvlsHostMode = defaults.nvlsHostMode;
    }
    config = WEFT_CONFIG_INITIALIZER;
    if (known.blocking != undefined) config.blocking = known.blocking;
    config.commName = known.commName;
    if (const std::string names = ignored_fields(known); !names.empty())
        log_info(std::string(function) + ": fields of the config that Weft does not have are ignored: " + names);
    return ncclSuccess;
}

ncclResult_t read_call_config(const char* function, const ncclCollConfig_t& given, ncclCollConfig_t& known) {
    std::memset(&known, 0, sizeof known);
    known.forceAlgSelection = 1;
    if (!read_struct(given, NCCL_API_MAGIC, known))
        return refuse(ncclInvalidArgument, function, "config was not initialised by NCCL_COLLCONFIG_INITIALIZER");
    if (known.version < WEFT_NCCL_2_32) known.launchCompletionEvent = nullptr;
    if (known.launchCompletionEvent)
        return refuse(
            ncclInvalidUsage, function,
            "Weft does not record config.launchCompletionEvent: record an event on the stream after the call");
    return ncclSuccess;
}

}  // namespace weft::internal::nccl
