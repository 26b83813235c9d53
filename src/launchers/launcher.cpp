#include "src/launchers/launcher.hpp"

#include <atomic>
#include <mutex>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/control/control_connection.hpp"
#include "src/launchers/derived_id.hpp"
#include "src/launchers/http_store.hpp"
#include "src/launchers/pmi.hpp"
#include "src/launchers/pmix.hpp"
#include "src/launchers/torch_store.hpp"

namespace weft::internal {

namespace {

// A variable that the family requires, so it is set.
std::string value_of(const char* variable) { return environment(variable).value_or(""); }

Result<uint16_t> port_of(const char* variable) {
    const auto port = parse_integer(value_of(variable));
    if (!port || *port < 1 || *port > UINT16_MAX)
        return fail(error::launcher_variables, "{} is `{}`, not a port from 1 to {}", variable, value_of(variable),
                    UINT16_MAX);
    return uint16_t(*port);
}

Result<UniqueId> id_of_text(const std::string& hex, const std::string& source) {
    auto bytes = from_hex(hex);
    if (!bytes) return fail(error::launcher_variables, "{}: {}", source, bytes.status().sentence());
    auto id = UniqueId::read(*bytes);
    if (!id) return fail(error::launcher_variables, "{}: {}", source, id.status().sentence());
    return id;
}

const char* name_of(IdTransport id_transport) {
    switch (id_transport) {
        case IdTransport::derived: break;
        case IdTransport::given: return "WEFT_UNIQUE_ID";
        case IdTransport::torch_store: return "the store at MASTER_ADDR";
        case IdTransport::http: return "Horovod's rendezvous server";
        case IdTransport::pmi: return "the launcher's PMI server";
        case IdTransport::pmix: return "the launcher's PMIx server";
    }
    return "no store";
}

Result<ExchangedText> exchange_by_pmix(const Options& options, const IdExchange& exchange, LaunchedRank& place) {
    auto found = exchange_by_pmix(options.pmix_library, exchange);
    if (!found) return found.take_status();
    if (!found->shared.text) return std::move(found->shared);
    if (place.ranks < 0) place = {place.rank, found->ranks, found->local_rank, found->local_size};
    if (place.ranks <= place.rank || place.ranks != found->ranks)
        return fail(error::launcher_lost, "rank {} of {}: the launcher's PMIx server says {} ranks", place.rank,
                    place.ranks, found->ranks);
    return std::move(found->shared);
}

Result<ExchangedText> exchange_id(const Family& family, const Options& options, const IdExchange& exchange,
                                  LaunchedRank& place) {
    switch (family.id_transport) {
        case IdTransport::derived: return no_id_transport({});
        case IdTransport::given:
            if (const auto id = environment("WEFT_UNIQUE_ID")) return ExchangedText{*id, {}};
            return no_id_transport("WEFT_UNIQUE_ID is not set");
        case IdTransport::torch_store: {
            auto port = port_of("MASTER_PORT");
            if (!port) return port.take_status();
            // Not TORCHELASTIC_RESTART_COUNT: each agent counts the restarts of its own workers.
            const std::string key =
                fmt::format("{}/{}", environment("TORCHELASTIC_RUN_ID").value_or("env"), place.ranks);
            return exchange_by_torch_store(value_of("MASTER_ADDR"), *port, key, exchange);
        }
        case IdTransport::http: {
            auto port = port_of("HOROVOD_GLOO_RENDEZVOUS_PORT");
            if (!port) return port.take_status();
            return exchange_by_http(value_of("HOROVOD_GLOO_RENDEZVOUS_ADDR"), *port, exchange);
        }
        case IdTransport::pmi: {
            const auto descriptor = parse_integer(value_of("PMI_FD"));
            if (!descriptor || *descriptor < 0 || *descriptor > INT_MAX)
                return fail(error::launcher_variables, "PMI_FD is `{}`, not a number from 0 on", value_of("PMI_FD"));
            return exchange_by_pmi(int(*descriptor), value_of("PMI_JOBID"), exchange);
        }
        case IdTransport::pmix: return exchange_by_pmix(options, exchange, place);
    }
    return no_id_transport({});
}

Result<LaunchedJob> job_alone(const char* launcher) {
    auto id = UniqueId::make();
    if (!id) return id.take_status();
    return LaunchedJob{launcher, 0, 1, 0, 1, *id, "this rank itself"};
}

}  // namespace

Result<LaunchedJob> read_job(const Options& options) {
    std::string warning;
    auto family = find_family(&warning);
    if (!family) return family.take_status();
    if (!warning.empty()) WEFT_LOG(warn, init, "{}", warning);
    if (!*family) return job_alone("no launcher");
    auto place = read_launched_rank(**family);
    if (!place) return place.take_status();
    const bool given = (*family)->id_transport == IdTransport::given;
    if (place->ranks == 1 && !given) return job_alone((*family)->name);
    IdExchange exchange{place->rank, place->ranks, {}, Deadline::in_ms(options.init_timeout_ms)};
    if (place->rank == 0 && !given) {
        auto made = UniqueId::make();
        if (!made) return made.take_status();
        exchange.text = to_hex(made->bytes());
    }
    auto shared = exchange_id(**family, options, exchange, *place);
    if (!shared) return shared.take_status();
    LaunchedJob job{(*family)->name, place->rank, place->ranks, place->local_rank, place->local_size, {}, {}};
    if (place->ranks < 0)
        return fail(error::launcher_none, "{}: the number of ranks is unknown: {}", (*family)->name, shared->reason);
    const char* source = name_of((*family)->id_transport);
    auto id = shared->text ? id_of_text(*shared->text, source)
                           : derive_id(**family, *place, options, shared->reason, exchange.deadline);
    if (id && !options.secret.empty()) id = id->keyed(options.secret);
    if (!id) return id.take_status();
    job.id = *id;
    job.id_source = shared->text             ? source
                    : shared->reason.empty() ? "the job's identity"
                                             : fmt::format("the job's identity, as {}", shared->reason);
    return job;
}

Result<LaunchedJob> read_job() {
    // Locked while the launcher's store is asked; a child that is forked meanwhile has a lock of its own.
    static PerProcess<std::mutex> reading;
    static std::atomic<const LaunchedJob*> known{nullptr};  // leaked: threads that outlive main may still read it
    std::lock_guard lock(reading.get());
    const LaunchedJob* found = known.load(std::memory_order_acquire);
    if (!found) {
        auto job = read_job(options());
        if (!job) return job.take_status();
        found = new LaunchedJob(std::move(*job));
        known.store(found, std::memory_order_release);
        // The ranks of later communicators check in at this process's listener, which therefore stays open.
        if (found->ranks > 1 && found->id.has_root() && found->id.made_here()) {
            static PerProcess<std::shared_ptr<AcceptDispatcher>> kept;
            if (auto dispatcher = AcceptDispatcher::of_process()) kept.get() = std::move(*dispatcher);
        }
        WEFT_LOG_RANK(found->rank, info, init, "{}: the unique id of {} ranks is from {}", found->launcher,
                      found->ranks, found->id_source);
    }
    return *found;
}

}  // namespace weft::internal
