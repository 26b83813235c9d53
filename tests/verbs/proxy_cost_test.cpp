// proxy_cost_test.cpp: the proxy moves a slot of a connection without an allocation, a lock or a system call, and in how
// much time. A NIC that completes at once takes the place of the fake one, when that has made the connections.
#include <linux/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <deque>

#include "src/base/clock.hpp"
#include "src/base/process_token.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/proxy/proxy_connections.hpp"
#include "tests/verbs/connections.hpp"
#include "transports/verbs/devices.hpp"

namespace weft::internal::test {

thread_local bool counting = false;
thread_local int allocations = 0, locks = 0;
// 0: system calls are made; 1: they raise SIGSYS instead (PR_SET_SYSCALL_USER_DISPATCH).
volatile char dispatch = 0;
volatile int system_calls = 0;

namespace {

namespace abi = verbs::abi;

struct Ends {
    abi::Pair* pair = nullptr;
    uint64_t receive_id = 0;
};
struct Ring {
    abi::Queue* queue = nullptr;
    std::array<abi::Completion, 256> entries{};
    size_t added = 0, taken = 0;
};
// A NIC that completes a request in the call that posts it. It copies headers only: of a slot it moves nothing.
class InstantNic {
  public:
    static void install(const verbs::Context& context) {
        abi::Operations& operations = context.get()->operations;
        if (operations.post_send == post_send) return;
        real = operations;
        operations.poll_cq = poll;
        operations.post_send = post_send;
        operations.post_recv = post_receive;
    }
    static inline bool instant = false;

  private:
    static Ring& ring_of(abi::Queue* queue) {
        for (Ring& ring : rings)
            if (ring.queue == queue || ring.queue == nullptr) return ring.queue = queue, ring;
        abort();
    }
    static void complete(abi::Queue* queue, const abi::Pair& pair, uint64_t id, int opcode, uint32_t imm) {
        Ring& ring = ring_of(queue);
        abi::Completion& made = ring.entries[ring.added++ % ring.entries.size()];
        made = {};
        made.wr_id = id;
        made.qp_num = pair.qp_num;
        made.opcode = opcode;
        made.imm_data = imm;
    }
    static int poll(abi::Queue* queue, int most, abi::Completion* completions) {
        if (!instant) return real.poll_cq(queue, most, completions);
        Ring& ring = ring_of(queue);
        int count = 0;
        for (; count < most && ring.taken < ring.added; ++count)
            completions[count] = ring.entries[ring.taken++ % ring.entries.size()];
        return count;
    }
    static int post_send(abi::Pair* pair, abi::SendRequest* first, abi::SendRequest** failed) {
        if (!instant) return real.post_send(pair, first, failed);
        for (abi::SendRequest* request = first; request; request = request->next) {
            if (request->num_sge == 1 && request->sg_list[0].length == 64 && request->opcode != verbs::opcode::read)
                memcpy(reinterpret_cast<void*>(request->remote_addr),
                       reinterpret_cast<const void*>(request->sg_list[0].addr), 64);
            if (request->opcode == verbs::opcode::write_with_imm) {
                const Ends& peer = pairs[0].pair == pair ? pairs[1] : pairs[0];
                complete(peer.pair->receive_queue, *peer.pair, peer.receive_id,
                         verbs::completed::receive_write_with_imm, request->imm_data);
            }
            if (request->send_flags & verbs::send_flag::signaled)
                complete(pair->send_queue, *pair, request->wr_id, verbs::completed::write, 0);
        }
        return 0;
    }
    static int post_receive(abi::Pair* pair, abi::ReceiveRequest* first, abi::ReceiveRequest** failed) {
        if (instant) return 0;
        for (Ends& each : pairs)
            if (each.pair == nullptr || each.pair == pair) {
                each = {pair, first->wr_id};
                break;
            }
        return real.post_recv(pair, first, failed);
    }
    static inline abi::Operations real{};
    static inline std::array<Ends, 2> pairs{};  // of the link
    static inline std::array<Ring, 8> rings{};
};

constexpr uint32_t depth = 4;
constexpr size_t slot_bytes = 256 << 10;

// One direction from rank 0 to rank 1. The test stands for the kernels.
struct Channel {
    std::vector<std::byte> slots[2];
    std::unique_ptr<RegisteredMemory> memory[2];
    uint64_t filled[2][depth] = {}, lengths[depth] = {};
    uint32_t consumed[2] = {}, wanted = 0;
    std::unique_ptr<Receiver> receiver;
    std::unique_ptr<Sender> sender;
    uint32_t sent = 0;

    Channel(const TwoRanks& ranks, int number) {
        Blob blob;
        for (const int self : {1, 0}) {
            slots[self].resize(depth * slot_bytes);
            memory[self] = taken(verbs_transport().register_memory(
                {.data = slots[self].data(), .bytes = slots[self].size(), .kind = RangeKind::pinned}));
            const ConnectionOptions options{.self = self,
                                            .peer = 1 - self,
                                            .channel = number,
                                            .depth = depth,
                                            .slot_bytes = slot_bytes,
                                            .identity = &ranks.identity(),
                                            .slots = slots[self].data(),
                                            .slot_memory = memory[self].get(),
                                            .driver = ConnectionOptions::Driver::proxy};
            if (self == 1)
                receiver = taken(verbs_transport().listen(options, blob));
            else
                sender = taken(verbs_transport().connect(options, blob));
        }
    }
    cuda::RemoteEnd end(int self) {
        return {0,
                self == 1,
                {slots[self].data(), filled[self], &consumed[self], nullptr, slot_bytes, depth, 1 - self,
                 self == 0 ? lengths : nullptr, self == 1 ? &wanted : nullptr}};
    }
    // Stands for the kernels of both ranks. Returns the number of slots that arrived.
    uint32_t kernels() {
        for (; sent - consumed[0] < depth; ++sent) {
            lengths[sent % depth] = slot_bytes;
            cuda::store_release(&filled[0][sent % depth], cuda::barrier_word(sent + 1, 7));
        }
        uint32_t arrived = 0;
        while (cuda::epoch_of(filled[1][consumed[1] % depth]) == consumed[1] + 1) {
            ++arrived;
            cuda::store_release(&consumed[1], consumed[1] + 1);
        }
        wanted = consumed[1] + 1;
        return arrived;
    }
};

void count_system_call(int, siginfo_t*, void*) {
    dispatch = 0;
    system_calls = system_calls + 1;
}

}  // namespace

TEST_CASE("the proxy moves a slot without an allocation, a lock or a system call", "[proxy]") {
    constexpr int channels = 4;
    verbs::set_settings(quick_settings());  // one queue pair
    for (const verbs::Device& device : taken(verbs::Devices::of_process())->all()) InstantNic::install(*device.context);
    auto group = taken(Segment::create(2));
    for (int rank = 0; rank < 2; ++rank) {
        REQUIRE(group->back_rows(rank, 1));
        group->row(rank).process = process_token();
    }
    const TwoRanks ranks;
    std::deque<Channel> all;
    uint32_t ended[2] = {};
    cuda::ProxyConnections proxies[2] = {{group, 0, &ended[0]}, {group, 1, &ended[1]}};
    for (int channel = 0; channel < channels; ++channel) {
        Channel& made = all.emplace_back(ranks, channel);
        proxies[0].add(made.end(0), made.sender.get(), nullptr, true);
        proxies[1].add(made.end(1), nullptr, made.receiver.get(), true);
    }
    uint64_t slots = 0;
    int64_t turns_ns = 0;
    const auto turn = [&] {
        for (Channel& channel : all) slots += channel.kernels();
        const auto begin = std::chrono::steady_clock::now();
        counting = true;
        for (cuda::ProxyConnections& proxy : proxies) (void)proxy.progress();
        counting = false;
        turns_ns += (std::chrono::steady_clock::now() - begin).count();
    };
    // Over the fake NIC until all are connected, and have passed some slots.
    REQUIRE(eventually([&] { return turn(), slots >= 100 && all.back().consumed[1] > 2; }));
    // Nothing is on its way when the NIC changes.
    REQUIRE(eventually([&] {
        for (cuda::ProxyConnections& proxy : proxies) (void)proxy.progress();
        bool quiet = true;
        for (Channel& channel : all) quiet = quiet && channel.consumed[0] == channel.sent;
        return quiet;
    }));
    for (int look = 0; look < 100; ++look, usleep(100))
        for (cuda::ProxyConnections& proxy : proxies) (void)proxy.progress();
    InstantNic::instant = true;
    for (int warm = 0; warm < 100; ++warm) turn();
    allocations = locks = 0;
    slots = 0;
    turns_ns = 0;
    constexpr int turns = 20'000;
    for (int each = 0; each < turns; ++each) turn();
    CHECK(slots >= uint64_t(turns));
    CHECK(allocations == 0);
    CHECK(locks == 0);
    std::printf("the proxies of both ranks take %.0f ns for a slot of %zu KiB, with %d connections\n",
                double(turns_ns) / double(slots), slot_bytes >> 10, channels);

    struct sigaction action = {};
    action.sa_sigaction = count_system_call;
    action.sa_flags = SA_SIGINFO;
    REQUIRE(sigaction(SIGSYS, &action, nullptr) == 0);
    // Sanitizers and old kernels have no dispatch.
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &dispatch) == 0) {
        for (const bool makes_one : {true, false}) {
            system_calls = 0;
            dispatch = 1;
            if (makes_one) (void)syscall(SYS_getppid);
            for (int each = 0; !makes_one && each < 100; ++each)
                for (cuda::ProxyConnections& proxy : proxies) {
                    for (Channel& channel : all) (void)channel.kernels();
                    (void)proxy.progress();
                }
            dispatch = 0;
            CHECK(system_calls == (makes_one ? 1 : 0));
        }
        (void)prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
    }
    InstantNic::instant = false;
}

TEST_CASE("the counts of this test count", "[proxy]") {
    allocations = locks = 0;
    counting = true;
    ::operator delete(::operator new(8));
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    counting = false;
    pthread_mutex_unlock(&mutex);
    CHECK(allocations >= 1);
    CHECK(locks == 1);
}

}  // namespace weft::internal::test

// In the place of the C library's.
extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
    weft::internal::test::allocations += weft::internal::test::counting;
    return __libc_malloc(bytes);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
    weft::internal::test::locks += weft::internal::test::counting;
    static std::atomic<int (*)(pthread_mutex_t*)> real{nullptr};
    if (real == nullptr) real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    return real.load()(mutex);
}
}
