#include "src/comm/joining.hpp"

#include <unistd.h>

#include <mutex>
#include <new>
#include <vector>

#include "src/base/build_facts.hpp"
#include "src/base/cpu.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/planning/machines.hpp"
#include "src/registry.hpp"
#include "src/segment/failure_record.hpp"
#include "src/selector/tuning_text.hpp"
#include "topology/detect/container.hpp"

namespace weft::internal {

namespace {

// Logs the version before anything can fail.
void log_version_once() {
    static PerProcess<std::once_flag> logged;
    std::call_once(logged.get(), [] {
        std::vector<const Transport*> usable(registry::transports().begin(), registry::transports().end());
        std::erase_if(usable, [](const Transport* transport) { return !transport->available().empty(); });
        const std::string sanitizers = names_of(library_sanitizers(), [](const std::string& name) { return name; });
        WEFT_LOG(version, init, "Weft {}, compiled by {}{}{}; transports {}; CPU kernels {}; {}", library_version(),
                 library_compiler(), sanitizers.empty() ? "" : " with sanitizers ", sanitizers,
                 names_of(usable, [](const Transport* transport) { return transport->name; }), cpu_kernel_names(),
                 cuda::device_code().empty() ? std::string("without device code")
                                             : fmt::format("device code for sm {}", cuda::device_code_targets()));
    });
}

}  // namespace

Result<Joining> prepare_joining(weftComm** comm, int nranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device) {
    if (!comm) return fail(error::argument_null, "comm is NULL: pass the address of a weftComm_t");
    *comm = nullptr;  // the caller may pass it to weftCommDestroy after an error
    if (nranks < 1 || nranks > max_ranks)
        return fail(error::argument_rank, "nranks is {}; a communicator has 1 to {} ranks", nranks, max_ranks);
    if (rank < 0 || rank >= nranks)
        return fail(error::argument_rank, "rank is {}; with nranks {} it is 0 to {}", rank, nranks, nranks - 1);
    log_version_once();
    auto settings = settings_for(nranks, given);
    if (!settings) return settings.take_status();
    if (nranks > 1 && !ranks_share_memory() && !id.has_root())
        return fail(error::init_unreachable,
                    "WEFT_TRANSPORTS forbids shared memory, but the process that made the unique id listens on no "
                    "network, so the ranks cannot meet; its log at INFO says why");
    RendezvousOptions& rendezvous = settings->rendezvous;
    auto host = host_of(rank);
    if (!host) return host.take_status();
    rendezvous.host = *host;
    rendezvous.quota = topology::cpu_quota();
    // Loads kernels before the ranks meet: later, loading could wait for running kernels of other ranks.
    auto found = GpuEngine::find(settings->device.value_or(device));
    if (!found) return found.take_status();
    Joining joining;
    joining.rank = rank;
    std::shared_ptr<HostStream> own_stream;
    if (settings->options.blocking) {
        joining.result = comm;
    } else {
        auto stream = HostStream::make(0);
        if (!stream) return stream.take_status();
        own_stream = std::move(*stream);
    }
    joining.device = std::move(*found);
    if (joining.device) rendezvous.device = joining.device->facts();
    // With two ranks there is no order to find, so their machines are not described.
    if (nranks > 2 || (nranks == 2 && joining.device)) {
        rendezvous.machine = [gpus = joining.device != nullptr] { return describe_this_machine(gpus); };
        // Described now, so that other ranks do not wait for it. A failure repeats in the rendezvous, which reports it.
        if (rank == 0) (void)rendezvous.machine();
    }
    joining.timeout_ms = rendezvous.timeout_ms;
    joining.options = std::move(settings->options);
    joining.rendezvous = std::make_unique<IdRendezvous>(id, nranks, rank, rendezvous);
    if (own_stream) {
        joining.hand_out(comm);
        joining.handle->keep_stream(std::move(own_stream));
    }
    return joining;
}

namespace {

Status same_algorithms(const Joining& joining) {
    const Catalog& catalog = *joining.options.catalog;
    const AgreedOptions& agreed = joining.rendezvous->segment()->header().agreed;
    if (agreed.deterministic && agreed.algo_files_any_order)
        return fail(error::option_conflict,
                    "WEFT_ALGO_FILES_ORDER=any lets results differ between ranks, and WEFT_DETERMINISTIC=1, or "
                    "config.deterministic, forbids that: unset one of them");
    if (catalog.any_order() != (agreed.algo_files_any_order != 0))
        return fail(error::option_differs,
                    "WEFT_ALGO_FILES_ORDER of rank {} is {}, rank 0's is {}: give all ranks the same value",
                    joining.rank, catalog.any_order() ? "any" : "empty", catalog.any_order() ? "empty" : "any");
    if (catalog.digest() == agreed.user_algorithms) return ok();
    const std::string faults = catalog.faults();
    return fail(
        error::option_differs,
        "WEFT_ALGO_FILES of rank {} holds other algorithms than rank 0's: give all ranks the same files, in the "
        "same order{}{}",
        joining.rank, faults.empty() ? "" : "; on this rank ", faults);
}

Status find_machines(Joining& joining) {
    auto machines = Machines::of(*joining.rendezvous->segment());
    if (!machines) return machines.take_status();
    joining.options.machines = std::move(*machines);
    return ok();
}

// From rank 0's tuning text.
Status find_tuning(Joining& joining, const std::string& text) {
    joining.options.tuning = nullptr;
    if (text.empty()) return ok();
    auto tuning = shared_by_process<const Tuning>(text, [&]() -> Result<std::shared_ptr<const Tuning>> {
        auto read = read_tuning(text);
        if (!read) return read.take_status();
        return std::make_shared<const Tuning>(std::move(*read));
    });
    if (!tuning) return tuning.take_status();
    joining.options.tuning = std::move(*tuning);
    return ok();
}

// Known only where the devices are, so the ranks meet first: otherwise ranks of other hosts would wait in vain.
Status check_rdma(int rank) {
    const Status wrong = registry::rdma_trouble();
    return wrong ? ok() : fail(wrong, "rank {} (pid {}): {}", rank, getpid(), wrong.sentence());
}

// One step: true when the ranks and their devices have met.
Result<bool> meet(Joining& joining) {
    if (!joining.met) {
        auto met = joining.rendezvous->advance();
        if (!met || !*met) return met;
        joining.met = true;
        AgreedTexts texts = AgreedTexts::of(*joining.rendezvous->segment());
        Status ready = texts.refusal ? Status(std::move(*texts.refusal)) : same_algorithms(joining);
        if (ready && !joining.same_ranks) ready = check_rdma(joining.rank);
        if (ready && !joining.same_ranks) ready = find_machines(joining);
        if (ready && !joining.same_ranks) ready = find_tuning(joining, texts.tuning);
        if (!ready) {
            FailureRecord(*joining.rendezvous->segment()).raise(ready, joining.rank);
            return ready;
        }
        const auto membership = joining.rendezvous->membership();
        if (joining.device)
            joining.device->meet(joining.rendezvous->segment(), membership ? &membership->identity() : nullptr,
                                 joining.rank, joining.timeout_ms, joining.options.catalog, joining.options.machines);
    }
    if (!joining.device) return true;
    auto known = joining.device->advance();
    // The other ranks must not wait for a rank that has given up.
    if (!known) FailureRecord(*joining.rendezvous->segment()).raise(known.status(), joining.rank);
    return known;
}

Result<bool> make_when_met(Joining& joining) {
    auto met = meet(joining);
    if (!met || !*met) return met;
    // Only a child needs a stream here; other communicators got theirs before.
    std::shared_ptr<HostStream> stream;
    if (!joining.options.blocking && (!joining.handle || !joining.handle->own_stream)) {
        auto made = HostStream::make(0);
        if (!made) {
            FailureRecord(*joining.rendezvous->segment()).raise(made.status(), joining.rank);
            return made.take_status();
        }
        stream = std::move(*made);
    }
    auto communicator = Communicator::make(joining.rendezvous->segment(), joining.rendezvous->membership(),
                                           std::move(joining.device), joining.rank, std::move(joining.options));
    if (!communicator) return communicator.take_status();
    weftComm* handle = joining.handle ? joining.handle.get() : make_handle();
    handle->deliver(std::move(*communicator), std::move(stream));
    if (joining.result) *joining.result = handle;
    return true;
}

}  // namespace

Result<bool> advance(Joining& joining) {
    Result<bool> made = false;
    try {
        if (joining.handle && joining.handle->cancelled.load(std::memory_order_acquire)) {
            made = fail(error::abort_local, "the communicator was aborted here, by weftCommAbort, while it was made");
            if (const auto group = joining.rendezvous->segment())
                FailureRecord(*group).raise(error::abort_remote, joining.rank,
                                            fmt::format("rank {} aborted the communicator (weftCommAbort) "
                                                        "while it was made",
                                                        joining.rank),
                                            {.rank = joining.rank});
        } else {
            made = make_when_met(joining);
        }
        if (made && !*made) return made;
    } catch (const std::bad_alloc&) {
        // Otherwise the other ranks would wait for this rank until their deadline.
        if (const auto group = joining.rendezvous->segment())
            FailureRecord(*group).raise(error::memory_exhausted, joining.rank,
                                        "a rank ran out of memory while it joined", {.rank = joining.rank});
        made = Status(error::memory_exhausted, "out of memory");
    }
    if (!made && joining.handle) joining.handle->deliver(made.status());
    joining.device.reset();
    joining.rendezvous.reset();
    return made;
}

Status join(std::vector<Joining> joinings, CallStatuses* statuses) {
    Status first;
    for (size_t left = joinings.size(); left > 0;) {
        for (Joining& joining : joinings) {
            if (!joining.rendezvous) continue;
            auto made = advance(joining);
            if (made && !*made) continue;
            Status failure = made.take_status();
            if (statuses && !failure)
                failure = statuses->fail(joining.number, joining.handle.get(), failure);
            else if (statuses)
                statuses->done(joining.number);
            if (!failure && first) first = std::move(failure);
            --left;
        }
        if (left == joinings.size() && left == 1 && !joinings[0].met)
            joinings[0].rendezvous->wait();
        else if (left > 0)
            usleep(200);
    }
    return first;
}

}  // namespace weft::internal
