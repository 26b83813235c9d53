#include "communicator.hpp"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "failure.hpp"

namespace weft_torch {

int64_t timeout_ms(std::chrono::milliseconds timeout) {
    constexpr auto longest = std::chrono::hours(24 * 365);
    return timeout.count() < 0 || timeout > longest ? 0 : std::max<int64_t>(timeout.count(), 1);
}

namespace {

// False: `timeout` passed, or `aborted`.
template <class Ready>
bool becomes(Ready ready, std::chrono::milliseconds timeout, const std::atomic<bool>* aborted) {
    const bool limited = timeout_ms(timeout) > 0;
    const auto begun = std::chrono::steady_clock::now();
    auto pause = std::chrono::microseconds(100);
    while (!ready()) {
        if (aborted && *aborted) return false;
        if (limited && std::chrono::steady_clock::now() - begun > timeout) return false;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(10'000));
    }
    return true;
}

// The value of a unique id's key after rank 0 gave up. The next rank 0 overwrites it.
const std::vector<uint8_t> gave_up{0};

void take_back(c10d::Store& store, const std::string& key) {
    try {
        store.set(key, gave_up);
    } catch (const std::exception&) {  // the id stays
    }
}

}  // namespace

// Not the store's wait(): it keeps the connection, which all threads share.
bool appears(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
             const std::atomic<bool>* aborted) {
    return becomes([&] { return store.check({key}); }, timeout, aborted);
}

bool finish(weftResult_t result, weftComm_t comm, const std::atomic<bool>* aborted) {
    while (result == weftInProgress) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (aborted && *aborted) return false;
        check(weftCommGetAsyncError(comm, &result), comm);
    }
    check(result, comm);
    return true;
}

void forget(c10d::Store& store, const std::string& key) {
    try {
        (void)store.deleteKey(key);
    } catch (const std::exception&) {  // the key stays
    }
}

std::unique_ptr<Communicator> Communicator::join(c10d::Store& store, const std::string& key, int rank, int size,
                                                 std::chrono::milliseconds timeout, const Settings& settings,
                                                 const std::atomic<bool>* aborted) try {
    weftUniqueId id;
    // A later group may use the same store, also after a failure: no rank may find this id there then. The key stays, since
    // the store's get() of another rank would wait for a key that is deleted before.
    auto no_id = c10::make_scope_exit([&] {
        if (rank == 0) take_back(store, key);
    });
    if (rank == 0) {
        check(weftGetUniqueId(&id));
        const auto* bytes = reinterpret_cast<const uint8_t*>(id.internal);
        store.set(key, std::vector<uint8_t>(bytes, bytes + sizeof id.internal));
    } else {
        std::vector<uint8_t> bytes;
        const auto has_id = [&] {
            if (!store.check({key})) return false;
            bytes = store.get(key);
            return bytes != gave_up;
        };
        if (!becomes(has_id, timeout, aborted)) {
            if (aborted && *aborted) std::rethrow_exception(ended_failure());
            throw_failure(c10::str("rank ", rank, " waited ", timeout.count(),
                                   " ms for the unique id of rank 0 in the store; ",
                                   "start rank 0, or give the group a longer timeout [init.rank-missing]"));
        }
        if (bytes.size() != sizeof id.internal)
            throw_failure(c10::str("the store's key ", key, " has ", bytes.size(), " bytes, and a unique id has ",
                                   sizeof id.internal, "; another program uses this store [argument.unique-id]"));
        memcpy(id.internal, bytes.data(), sizeof id.internal);
    }
    auto made = make(id, rank, size, timeout, settings, aborted);
    no_id.release();
    if (rank == 0) forget(store, key);
    weftComm_t comm = made->get();
    if (!finish(weftBarrier(comm, nullptr), comm, aborted)) {
        made->abort();
        std::rethrow_exception(ended_failure());
    }
    return made;
} catch (...) {
    rethrow_for_store();
}

std::unique_ptr<Communicator> Communicator::make(const weftUniqueId& id, int rank, int size,
                                                 std::chrono::milliseconds timeout, const Settings& settings,
                                                 const std::atomic<bool>* aborted) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blocking = aborted ? 0 : 1;
    config.timeoutMs = config.initTimeoutMs = timeout_ms(timeout);
    config.commName = settings.name.empty() ? nullptr : settings.name.c_str();
    config.algo = settings.algo.empty() ? nullptr : settings.algo.c_str();
    config.deterministic = settings.deterministic;
    config.device = settings.device;
    weftComm_t comm = nullptr;
    const weftResult_t begun = weftCommInitRankConfig(&comm, size, id, rank, &config);
    if (begun != weftInProgress) check(begun);
    const size_t number = std::hash<std::string_view>()({id.internal, sizeof id.internal});
    auto made = std::make_unique<Communicator>(comm, number);
    if (!finish(begun, comm, aborted)) {
        made->abort();
        std::rethrow_exception(ended_failure());
    }
    return made;
}

void Communicator::leave() {
    if (origin_.is_forked()) return;
    weftComm_t leaving = nullptr;
    {
        std::lock_guard lock(mutex_);
        leaving = comm_;
    }
    if (!leaving) return;
    // Waits for calls on device memory; another thread's abort() ends that.
    weftResult_t ended = weftCommFinalize(leaving);
    while (ended == weftInProgress) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        if (weftCommGetAsyncError(leaving, &ended) != weftSuccess) break;
    }
    {
        std::lock_guard lock(mutex_);
        if (!comm_) return;
        left_failure_ = current_failure();
        comm_ = nullptr;
    }
    (void)weftCommDestroy(leaving);
}

void Communicator::check_device(const c10::Device& device) {
    int number = 0;
    if (weftCommCuDevice(get(), &number) != weftSuccess)
        throw_argument(c10::str("the tensor is on ", device, ", and ", weftGetLastError(get())));
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

weftResult_t Communicator::error() {
    std::lock_guard lock(mutex_);
    weftResult_t error = weftSuccess;
    if (!comm_) return weftSuccess;
    if (weftCommGetAsyncError(comm_, &error) != weftSuccess) return weftInternalError;
    return error == weftInProgress ? weftSuccess : error;
}

bool Communicator::peer_has_left() {
    std::lock_guard lock(mutex_);
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    return comm_ && weftGetLastErrorInfo(comm_, &info) == weftSuccess && std::string_view(info.id) == "rank.left";
}

std::exception_ptr Communicator::failure() {
    std::lock_guard lock(mutex_);
    auto failure = aborted_ ? ended_failure() : comm_ ? current_failure() : left_failure_;
    if (failure) failure_known_ = true;
    return failure;
}

std::exception_ptr Communicator::unknown_failure() {
    std::lock_guard lock(mutex_);
    return aborted_ || failure_known_ ? nullptr : left_failure_;
}

std::exception_ptr Communicator::current_failure() {
    weftResult_t error = weftSuccess;
    if (!comm_ || weftCommGetAsyncError(comm_, &error) != weftSuccess) return nullptr;
    if (error == weftSuccess || error == weftInProgress) return nullptr;
    try {
        check(error, comm_);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

void Communicator::abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    if (comm_) (void)weftCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace weft_torch
