#include "channels.hpp"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <cstring>

#include "failure.hpp"
#include "tensors.hpp"

namespace weft_torch {

namespace {

// The first part of a message: 128 bytes. A short message has no second part.
struct Header {
    uint64_t bytes;
    int32_t tag;
    uint32_t reserved;
    std::byte data[112];
};
static_assert(sizeof(Header) == 128);

// Both ranks have announced themselves.
constexpr std::chrono::seconds most_joining{60};

bool fits(uint64_t bytes) { return bytes <= sizeof(Header::data); }

void write_to(const std::shared_ptr<Receive>& receive, const void* bytes) {
    const at::NoGradGuard no_gradients;
    const at::ThreadLocalStateGuard state(receive->work->state());
    at::Tensor flat =
        is_plain(receive->tensor) ? receive->tensor : at::empty(receive->tensor.sizes(), receive->tensor.options());
    if (flat.nbytes() > 0) memcpy(flat.data_ptr(), bytes, flat.nbytes());
    if (!flat.is_same(receive->tensor)) receive->tensor.copy_(flat);
}

// Ends a receive with the bytes of a message. If its size is another one, only this receive fails, and the message is lost.
void deliver(const std::shared_ptr<Receive>& receive, const at::Tensor& bytes, int source) {
    receive->work->set_source(source);
    try {
        if (bytes.nbytes() != receive->tensor.nbytes())
            throw_failure(c10::str("recv: this rank receives ", receive->tensor.nbytes(), " bytes with tag ",
                                   receive->tag, " from rank ", source, ", and that rank sent ", bytes.nbytes(),
                                   " bytes; both need one shape and type [mismatch.message]"));
        write_to(receive, bytes.const_data_ptr());
    } catch (...) {
        receive->work->fail(std::current_exception());
    }
}

}  // namespace

Connection::Connection(c10::intrusive_ptr<c10d::Store> store, int source, int destination, bool sends,
                       Settings settings)
    : store_(std::move(store)),
      source_(source),
      destination_(destination),
      sends_(sends),
      settings_(std::move(settings)) {}

// Works may share the communicator for longer.
Connection::~Connection() { leave(); }

std::exception_ptr Connection::leave() {
    std::shared_ptr<Communicator> leaving;
    {
        std::lock_guard lock(mutex_);
        leaving = made_;
    }
    if (!leaving) return nullptr;
    leaving->leave();
    return leaving->unknown_failure();
}

std::shared_ptr<Communicator> Connection::get(std::chrono::milliseconds timeout) try {
    if (made_) return made_;
    const std::string key = c10::str("weft/p2p/", source_, "-", destination_);
    const std::string own = key + (sends_ ? "/s" : "/r"), other = key + (sends_ ? "/r" : "/s");
    const int peer = sends_ ? destination_ : source_;
    // Each side announces itself, so that joining takes no longer than both need. abort() ends the wait.
    store_->set(own, "1");
    // A later group may use the same store, and must not find this key there.
    auto forget_own = c10::make_scope_exit([&] { forget(*store_, own); });
    if (!appears(*store_, other, timeout, &aborted_)) {
        if (aborted_) std::rethrow_exception(ended_failure());
        throw_failure(c10::str(sends_ ? "send to rank " : "recv from rank ", peer, ": after ", timeout.count(),
                               " ms rank ", peer, sends_ ? " has not called recv" : " has not called send",
                               " [timeout.message]"));
    }
    // A communicator of host memory cannot be aborted while it is made.
    const bool limited = timeout_ms(timeout) > 0 && timeout < most_joining;
    auto made = Communicator::join(*store_, key, sends_ ? 0 : 1, 2, limited ? timeout : most_joining, settings_,
                                   settings_.device == WEFT_DEVICE_NONE ? nullptr : &aborted_);
    forget_own.release();
    if (sends_) {
        forget(*store_, own);
        forget(*store_, other);
    }
    std::lock_guard lock(mutex_);
    if (aborted_) std::rethrow_exception(ended_failure());
    return made_ = std::move(made);
} catch (...) {
    rethrow_for_store();
}

bool Connection::is_made() {
    std::lock_guard lock(mutex_);
    return made_ != nullptr && !aborted_;
}

weftResult_t Connection::error() {
    std::lock_guard lock(mutex_);
    return made_ && !aborted_ ? made_->error() : weftSuccess;
}

bool Connection::peer_has_left() {
    std::lock_guard lock(mutex_);
    return made_ && !aborted_ && made_->peer_has_left();
}

void Connection::abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    if (made_) made_->abort();
}

Sender::Sender(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

Sender::~Sender() { queue_->end(); }

void Sender::abort() { connection_->abort(); }

void Sender::send(const at::Tensor& tensor, int tag, std::chrono::milliseconds timeout) {
    const at::NoGradGuard no_gradients;
    const at::Tensor bytes = dense(tensor);
    const auto communicator = connection_->get(timeout);
    communicator->set_timeout(timeout);
    weftComm_t comm = communicator->get();
    Header header;
    header.bytes = bytes.nbytes();
    header.tag = tag;
    header.reserved = 0;
    if (fits(header.bytes) && header.bytes > 0) memcpy(header.data, bytes.const_data_ptr(), header.bytes);
    check(weftSend(&header, sizeof header, weftUint8, 1, comm, nullptr), comm);
    if (!fits(header.bytes)) check(weftSend(bytes.const_data_ptr(), header.bytes, weftUint8, 1, comm, nullptr), comm);
}

void Receiver::add(const std::shared_ptr<Receive>& receive) {
    std::unique_lock lock(mutex_);
    if (ending_) {
        if (!receive->any_source) std::rethrow_exception(ended_failure());
        return;
    }
    if (receive->taken) return;
    std::erase_if(waiting_, [](const auto& each) { return each->any_source && each->taken; });
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        if (kept->tag != receive->tag) continue;
        if (receive->taken.exchange(true)) return;
        const at::Tensor bytes = std::move(kept->bytes);
        kept_.erase(kept);
        lock.unlock();
        deliver(receive, bytes, connection_->source());
        receive->work->complete();
        return;
    }
    waiting_.push_back(receive);
    wake();
}

bool Receiver::has_work() const {
    for (const auto& receive : waiting_)
        if (!receive->taken) return true;
    return false;
}

std::shared_ptr<Receive> Receiver::take(int tag) {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
        if ((*at)->any_source && (*at)->taken) {
            at = waiting_.erase(at);
        } else if ((*at)->tag != tag || (*at)->taken.exchange(true)) {
            ++at;
        } else {
            auto found = std::move(*at);
            waiting_.erase(at);
            return found;
        }
    }
    return nullptr;
}

HostWorkPtr Receiver::fail_next() {
    while (!waiting_.empty()) {
        auto receive = std::move(waiting_.front());
        waiting_.pop_front();
        if (ended_ && receive->sources.fetch_sub(1) > 1) continue;
        if (receive->taken.exchange(true)) continue;
        receive->work->fail(broken_);
        return receive->work;
    }
    return nullptr;
}

HostWorkPtr Receiver::step(std::unique_lock<std::mutex>& lock) {
    if (broken_) return fail_next();
    // A message from any source may never come from this one, so the wait for it has no limit here.
    constexpr auto unlimited = std::chrono::milliseconds::max();
    auto timeout = unlimited, payload_timeout = unlimited;
    bool any = false;
    for (const auto& each : waiting_) {
        if (each->taken) continue;
        any = true;
        payload_timeout = std::min(payload_timeout, each->timeout);
        if (!each->any_source) timeout = std::min(timeout, each->timeout);
    }
    if (!any) return {};  // another receiver took it meanwhile
    lock.unlock();
    std::shared_ptr<Receive> receive;
    at::Tensor unexpected;
    Header header;
    std::optional<Progress::Flow> flow, flow_of_all;  // the payload
    try {
        const auto communicator = connection_->get(timeout);
        communicator->set_timeout(timeout);
        weftComm_t comm = communicator->get();
        const weftResult_t received = weftRecv(&header, sizeof header, weftUint8, 0, comm, nullptr);
        if (received != weftSuccess && connection_->peer_has_left()) {
            ended_ = true;
            throw_failure(c10::str("recv: rank ", connection_->source(),
                                   " has left the process group and sends no message any more [rank.left]"));
        }
        check(received, comm);
        flow.emplace(progress_);
        flow_of_all.emplace(*all_);
        lock.lock();
        receive = take(header.tag);
        delivers_ = receive != nullptr;
        lock.unlock();
        const bool in_place = receive && receive->tensor.nbytes() == header.bytes && is_plain(receive->tensor);
        if (!in_place || fits(header.bytes)) unexpected = at::empty({int64_t(header.bytes)}, at::kByte);
        void* to = unexpected.defined() ? unexpected.data_ptr() : receive->tensor.data_ptr();
        if (!fits(header.bytes)) {
            communicator->set_timeout(payload_timeout);
            check(weftRecv(to, header.bytes, weftUint8, 0, comm, nullptr), comm);
        } else if (header.bytes > 0) {
            memcpy(to, header.data, header.bytes);
        }
    } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        delivers_ = false;
        broken_ = std::current_exception();
        if (!receive) return fail_next();
        receive->work->fail(broken_);
        return receive->work;
    }
    lock.lock();
    if (!receive) receive = take(header.tag);  // one that came meanwhile
    delivers_ = receive != nullptr;
    if (!receive) {
        kept_.push_back({header.tag, std::move(unexpected)});
        return {};
    }
    if (unexpected.defined()) {
        lock.unlock();
        deliver(receive, unexpected, connection_->source());
        lock.lock();
    } else {
        receive->work->set_source(connection_->source());
    }
    delivers_ = false;
    return receive->work;
}

std::vector<HostWorkPtr> Receiver::take_waiting() {
    std::vector<HostWorkPtr> dropped;
    for (const auto& receive : waiting_)
        if (!receive->taken.exchange(true)) dropped.push_back(receive->work);
    waiting_.clear();
    return dropped;
}

void Receiver::abort() { connection_->abort(); }

}  // namespace weft_torch
