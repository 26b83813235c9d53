#include "src/gpu/proxy/proxy.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <new>

#include "src/base/clock.hpp"
#include "src/base/fd.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t patience_us = 200;  // the time of a one-slot message over 10 Gb/s
// Kernels cannot wake the proxy. A running kernel may wait long for other work, and a captured graph may never be
// launched.
constexpr int64_t nap_first_us = 20, nap_busy_us = 100, nap_occasional_us = 1000;
constexpr int64_t shutdown_us = 10'000'000;     // as long as control/control.cpp waits for others at the end
constexpr int64_t finishing_us = 1'000'000;     // of that for running kernels: their data may never come
constexpr int64_t acquaintance_us = 2'000'000;  // time to make connections before the first call

}  // namespace

struct Proxy::Loop {
    using PollRate = ProxyConnections::PollRate;
    Fd bell;
    std::atomic<bool> ending{false}, asleep{false};
    std::atomic<int> visitors{0};  // threads that want the lock; the proxy's thread lets them go first
    std::mutex mutex;              // guards the fields below, and every ProxyConnections
    std::list<std::shared_ptr<ProxyConnections>> all;
    int64_t acquainted_us = 0;
    bool halted = false;  // permanently: the process ends

    Wakeups wakeups;  // used by the proxy's thread

    void ring() { ring_event(bell); }
    void run();
    void end_with_process();
    bool step(PollRate& poll_rate);
    bool sleep(int64_t nap_us);

    // The lock, for threads other than the proxy's.
    class Visit {
      public:
        explicit Visit(Loop& loop) : loop_(loop) {
            loop_.visitors.fetch_add(1, std::memory_order_acq_rel);
            loop_.mutex.lock();
        }
        Visit(const Visit&) = delete;
        ~Visit() {
            loop_.mutex.unlock();
            loop_.visitors.fetch_sub(1, std::memory_order_acq_rel);
        }

      private:
        Loop& loop_;
    };
};

namespace {

PerProcess<std::weak_ptr<Proxy::Loop>>& loop_of_process() {
    static PerProcess<std::weak_ptr<Proxy::Loop>> loop;
    return loop;
}

// The driver releases pinned memory when the process ends, even if communicators were not destroyed. This handler is
// registered after the driver's handlers, so it is called before them.
void at_exit() {
    if (const auto loop = loop_of_process().get().lock()) loop->end_with_process();
}

}  // namespace

Result<std::shared_ptr<Proxy>> Proxy::of_process() {
    static const int registered = atexit(at_exit);
    (void)registered;
    return shared_by_process<Proxy>([]() -> Result<std::shared_ptr<Proxy>> {
        auto loop = std::make_shared<Loop>();
        loop->bell = Fd::event();
        if (!loop->bell)
            return fail(error::system_descriptors, "the proxy thread cannot create its event descriptor: {}",
                        no_descriptor_text(errno));
        auto thread = OwnedThread::start("weft-proxy", [loop] { loop->run(); });
        if (!thread) return thread.take_status();
        loop_of_process().get() = loop;
        return std::make_shared<Proxy>(std::move(loop), std::move(*thread));
    });
}

Proxy::Proxy(std::shared_ptr<Loop> loop, OwnedThread thread) : loop_(std::move(loop)), thread_(std::move(thread)) {}

Proxy::~Proxy() {
    if (!thread_.runs_here()) return;
    loop_->ending.store(true, std::memory_order_seq_cst);
    loop_->ring();
    thread_.end();
}

void Proxy::attach(std::shared_ptr<ProxyConnections> connections) {
    {
        const Loop::Visit visit(*loop_);
        loop_->all.push_back(std::move(connections));
        loop_->acquainted_us = now_us() + acquaintance_us;
    }
    loop_->ring();
}

bool Proxy::detach(const ProxyConnections& connections, int64_t deadline_us, int64_t patience_us) {
    if (!thread_.runs_here()) return true;  // after fork the lock may be held for ever
    for (int64_t moved_us = now_us();; usleep(100)) {
        const Loop::Visit visit(*loop_);
        const auto place = std::find_if(loop_->all.begin(), loop_->all.end(),
                                        [&](const auto& each) { return each.get() == &connections; });
        if (place == loop_->all.end()) return true;
        if ((*place)->progress()) moved_us = now_us();
        const bool drained = connections.drained(),
                   hopeless = now_us() - moved_us > patience_us && connections.drained(true);
        if (!drained && !hopeless && (deadline_us == 0 || now_us() < deadline_us)) continue;
        loop_->all.erase(place);
        return drained;
    }
}

void Proxy::wake() {
    if (loop_->asleep.load(std::memory_order_seq_cst)) loop_->ring();  // pairs with Loop::sleep()
}

// True: something moved.
bool Proxy::Loop::step(PollRate& poll_rate) {
    while (visitors.load(std::memory_order_acquire) > 0) sched_yield();
    std::lock_guard lock(mutex);
    bool moved = false;
    poll_rate = PollRate::idle;
    if (halted) return false;
    if (now_us() < acquainted_us) poll_rate = PollRate::occasional;
    for (const auto& connections : all) {
        moved |= connections->progress();
        poll_rate = std::max(poll_rate, connections->poll_rate());
    }
    return moved;
}

// Data of kernels that have ended goes first: to the user their operations are complete. Running kernels are served
// too, because a thread that destroys its communicator later waits for them.
void Proxy::Loop::end_with_process() {
    for (const int64_t began_us = now_us();; usleep(100)) {
        const Visit visit(*this);
        bool settled = true, drained = true;
        for (const auto& connections : all) {
            connections->progress();
            settled &= connections->settled();
            drained &= connections->drained();
        }
        if (!settled && now_us() < began_us + (drained ? finishing_us : shutdown_us)) continue;
        halted = true;
        return;
    }
}

// nap_us: the longest sleep; 0: until another thread rings. Returns whether a thread has rung.
bool Proxy::Loop::sleep(int64_t nap_us) {
    asleep.store(
        true, std::memory_order_seq_cst);  // a thread that launches after this rings; an earlier launch is seen below
    PollRate poll_rate = PollRate::idle;
    if (!step(poll_rate) && (nap_us > 0 || poll_rate == PollRate::idle)) {
        wakeups.clear();
        wakeups.descriptors.push_back({bell.number(), POLLIN, 0});
        if (nap_us > 0) {
            const std::lock_guard lock(mutex);
            for (const auto& connections : all)
                if (!halted) connections->add_wakeups(wakeups);
        }
        // At least once a second, because ppoll() does not notice if the program closes the event descriptor.
        const timespec nap{nap_us > 0 ? 0 : 1, nap_us * 1000}, lost_nap{0, nap_busy_us * 1000};
        auto& descriptors = wakeups.descriptors;
        if (!wakeups.ready && !ending.load(std::memory_order_seq_cst) &&
            ppoll(descriptors.data(), descriptors.size(), &nap, nullptr) > 0 && (descriptors[0].revents & POLLNVAL))
            (void)nanosleep(&lost_nap, nullptr);
    }
    asleep.store(false, std::memory_order_seq_cst);
    return drain_event(bell);
}

void Proxy::Loop::run() {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // 1 us timer slack for short naps
    int64_t moved_us = now_us(), nap_us = nap_first_us;
    while (!ending.load(std::memory_order_acquire)) try {
            PollRate poll_rate = PollRate::idle;
            const bool moved = step(poll_rate);
            if (!moved && poll_rate != PollRate::idle && now_us() - moved_us < patience_us) {
                sched_yield();  // a kernel's or a peer's thread may need the core
                continue;
            }
            if (!moved && poll_rate != PollRate::idle) {
                nap_us = std::min(2 * nap_us, poll_rate == PollRate::busy ? nap_busy_us : nap_occasional_us);
                if (!sleep(nap_us)) continue;
            } else if (!moved) {
                (void)sleep(0);
            }
            moved_us = now_us();
            nap_us = nap_first_us;
        } catch (const std::bad_alloc&) {
            const std::lock_guard lock(mutex);
            for (const auto& connections : all)
                connections->give_up("a process ran out of memory while it sent and received for its devices");
        }
}

}  // namespace weft::internal::cuda
