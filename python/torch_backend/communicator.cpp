#include "communicator.hpp"

#include <cstring>

#include "failure.hpp"

namespace weft_torch {

int64_t timeout_ms(std::chrono::milliseconds timeout) {
    constexpr auto longest = std::chrono::hours(24 * 365);
    return timeout.count() < 0 || timeout > longest ? 0 : std::max<int64_t>(timeout.count(), 1);
}

std::unique_ptr<Communicator> Communicator::join(c10d::Store& store, const std::string& key, int rank, int size,
                                                 std::chrono::milliseconds timeout, const Settings& settings) {
    weftUniqueId id;
    if (rank == 0) {
        check(weftGetUniqueId(&id));
        const auto* bytes = reinterpret_cast<const uint8_t*>(id.internal);
        store.set(key, std::vector<uint8_t>(bytes, bytes + sizeof id.internal));
    } else {
        store.wait({key}, timeout);
        const std::vector<uint8_t> bytes = store.get(key);
        if (bytes.size() != sizeof id.internal)
            throw_failure(c10::str("the store's key ", key, " has ", bytes.size(), " bytes, and a unique id has ",
                                   sizeof id.internal, "; another program uses this store [argument.unique-id]"));
        memcpy(id.internal, bytes.data(), sizeof id.internal);
    }
    return make(id, rank, size, timeout, settings);
}

std::unique_ptr<Communicator> Communicator::make(const weftUniqueId& id, int rank, int size,
                                                 std::chrono::milliseconds timeout, const Settings& settings) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = config.initTimeoutMs = timeout_ms(timeout);
    config.commName = settings.name.empty() ? nullptr : settings.name.c_str();
    config.algo = settings.algo.empty() ? nullptr : settings.algo.c_str();
    config.deterministic = settings.deterministic;
    weftComm_t comm = nullptr;
    check(weftCommInitRankConfig(&comm, size, id, rank, &config));
    return std::make_unique<Communicator>(comm);
}

Communicator::~Communicator() {
    if (comm_ && !origin_.is_forked()) (void)weftCommDestroy(comm_);
}

weftComm_t Communicator::get() {
    std::lock_guard lock(mutex_);
    if (!comm_) std::rethrow_exception(ended_failure());
    return comm_;
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
    const int64_t wanted = timeout_ms(timeout);
    if (wanted == timeout_ms_) return;
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    config.timeoutMs = wanted;
    weftComm_t comm = get();
    check(weftCommSetCallConfig(comm, &config), comm);
    timeout_ms_ = wanted;
}

bool Communicator::has_failed() {
    std::lock_guard lock(mutex_);
    weftResult_t error = weftSuccess;
    return comm_ && weftCommGetAsyncError(comm_, &error) == weftSuccess && error != weftSuccess &&
           error != weftInProgress;
}

void Communicator::abort() {
    std::lock_guard lock(mutex_);
    if (comm_) (void)weftCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace weft_torch
