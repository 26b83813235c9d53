#include "src/comm/joining.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/registry.hpp"

namespace weft {

namespace {

Status check_config(const weftConfig_t& config) {
    if (config.magic != WEFT_CONFIG_MAGIC || config.size < offsetof(weftConfig_t, timeoutMs))
        return fail(weftInvalidArgument,
                    "the config was not initialised: begin with weftConfig_t config = WEFT_CONFIG_INITIALIZER");
    return ok();
}

// Milliseconds that can be counted in microseconds: what is longer than that is 292,000 years anyway.
int64_t countable_ms(int64_t ms) { return std::min(ms, INT64_MAX / 1000); }

}  // namespace

bool ranks_share_memory() { return NameList(options().transports).admits("shm"); }

// The config is read into a struct of this library's size whatever the caller's was.
Result<Joining> prepare_joining(weftComm** comm, int nranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device) {
    if (!comm) return fail(weftInvalidArgument, "comm is NULL: pass the address of a weftComm_t");
    *comm = nullptr;  // whatever comes: the caller may pass it to weftCommDestroy
    if (nranks < 1 || nranks > max_ranks)
        return fail(weftInvalidArgument, "nranks is {}; a communicator has 1 to {} ranks", nranks, max_ranks);
    if (rank < 0 || rank >= nranks)
        return fail(weftInvalidArgument, "rank is {}; with nranks {} it is 0 to {}", rank, nranks, nranks - 1);
    if (!options_status()) return Status(weftInvalidArgument, options_status().sentence());
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    if (given) {
        WEFT_TRY(check_config(*given));
        memcpy(&config, given, std::min(given->size, sizeof config));
    }
    if (config.blocking == 0)
        return fail(weftInvalidArgument, "config.blocking is 0; Weft {}.{} has blocking communicators only", WEFT_MAJOR,
                    WEFT_MINOR);
    if (config.blocking != 1 && config.blocking != WEFT_CONFIG_UNDEF_INT)
        return fail(weftInvalidArgument, "config.blocking is {}; it is 1 or undefined", config.blocking);

    const Options& environment = options();
    Joining joining;
    joining.rank = rank;
    joining.result = comm;
    CommunicatorOptions& settings = joining.options;
    settings.name = config.commName ? config.commName : "";
    settings.timeout_ms = countable_ms(config.timeoutMs >= 0 ? config.timeoutMs : environment.timeout_ms);
    settings.warn_ms = countable_ms(environment.warn_ms);
    settings.sleep_us = environment.sleep_us;
    settings.streaming_bytes = environment.streaming_bytes;
    settings.movers = environment.isa.empty() ? &movers() : find_movers(environment.isa);
    if (!settings.movers) {
        std::string names;
        for (const Movers* set : all_movers()) names += fmt::format("{}{}", names.empty() ? "" : ", ", set->isa);
        return fail(weftInvalidArgument, "WEFT_ISA is `{}`; this machine has {}", environment.isa, names);
    }

    MeetingOptions meeting;
    meeting.timeout_ms = countable_ms(config.initTimeoutMs >= 0 ? config.initTimeoutMs : environment.init_timeout_ms);
    const std::string algo = config.algo ? config.algo : environment.algo;
    auto catalog = Catalog::shared(environment.algo_files, nranks, registry::algorithms());
    if (!catalog) return catalog.take_status();
    settings.catalog = std::move(*catalog);
    WEFT_TRY(check_algo(algo, settings.catalog->rows()));
    if (algo.size() >= sizeof meeting.proposal.algo)
        return fail(weftInvalidArgument, "the list of algorithms has {} characters; at most {} are read", algo.size(),
                    sizeof meeting.proposal.algo - 1);
    memcpy(meeting.proposal.algo, algo.c_str(), algo.size() + 1);
    meeting.proposal.tile_bytes = environment.tile_bytes;
    meeting.proposal.channels = environment.channels;
    meeting.proposal.direct = environment.direct;
    meeting.proposal.cross_memory = environment.cross_memory;
    meeting.proposal.user_algorithms = settings.catalog->digest();
    std::vector<std::string_view> transports;
    for (const Transport& transport : registry::transports()) transports.push_back(transport.name);
    WEFT_TRY(check_names("WEFT_TRANSPORTS", environment.transports, transports));
    auto host = host_identity();
    if (!host) return host.take_status();
    // Where no memory may be shared every rank is a host of its own.
    meeting.host = ranks_share_memory() ? *host : *host ^ (uint64_t(rank) + 1) * 0x9e3779b97f4a7c15u;
    // Kernels are loaded before the ranks meet: later it could wait for those of ranks that run already.
    auto found = DeviceSide::find(device);
    if (!found) return found.take_status();
    joining.device = std::move(*found);
    if (joining.device) meeting.device = joining.device->facts();
    joining.timeout_ms = meeting.timeout_ms;
    joining.meeting = std::make_unique<Meeting>(id, nranks, rank, meeting);
    return joining;
}

namespace {

Status same_algorithms(const Joining& joining) {
    if (joining.options.catalog->digest() == joining.meeting->group()->header().agreed.user_algorithms) return ok();
    return fail(
        weftInvalidUsage,
        "WEFT_ALGO_FILES of rank {} holds other algorithms than rank 0's: give all ranks the same files, in the "
        "same order",
        joining.rank);
}

// One step: true when the ranks and their devices have met.
Result<bool> advance(Joining& joining) {
    if (!joining.met) {
        auto met = joining.meeting->advance();
        if (!met || !*met) return met;
        joining.met = true;
        if (Status alike = same_algorithms(joining); !alike) {
            joining.meeting->group()->raise(alike.code(), joining.rank, alike.sentence());
            return alike;
        }
        const auto membership = joining.meeting->membership();
        if (joining.device)
            joining.device->meet(joining.meeting->group(), membership ? &membership->identity() : nullptr, joining.rank,
                                 joining.timeout_ms, joining.options.catalog);
    }
    if (!joining.device) return true;
    auto known = joining.device->advance();
    // Nobody waits for a rank that has given up.
    if (!known) joining.meeting->group()->raise(known.status().code(), joining.rank, known.status().sentence());
    return known;
}

}  // namespace

Status join(std::vector<Joining> joinings) {
    Status first;
    const auto keep = [&](Status failure) {
        if (first) first = std::move(failure);
    };
    for (size_t left = joinings.size(); left > 0;) {
        for (size_t i = 0; i < joinings.size(); ++i) {
            Joining& joining = joinings[i];
            if (!joining.meeting) continue;
            try {
                auto met = advance(joining);
                if (met && !*met) continue;
                if (!met) {
                    keep(met.take_status());
                } else {
                    auto communicator =
                        Communicator::make(joining.meeting->group(), joining.meeting->membership(),
                                           std::move(joining.device), joining.rank, std::move(joining.options));
                    if (communicator)
                        *joining.result = make_handle(std::move(*communicator));
                    else
                        keep(communicator.take_status());
                }
            } catch (const std::bad_alloc&) {
                // The others would wait for this rank until their deadline.
                if (const auto group = joining.meeting->group())
                    group->raise(weftSystemError, joining.rank, "a rank ran out of memory while it joined");
                if (first) first = Status(weftSystemError, "out of memory");
            }
            joining.device.reset();
            joining.meeting.reset();
            --left;
        }
        if (left == joinings.size() && left == 1 && !joinings[0].met)
            joinings[0].meeting->wait();
        else if (left > 0)
            usleep(200);
    }
    return first;
}

}  // namespace weft
