#include "tools/rdma_check_parts.hpp"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/base/printing.hpp"
#include "src/drivers/verbs/memory.hpp"
#include "transports/verbs/registered.hpp"
#include "weft/weft.hpp"

namespace weft::internal::tools {

namespace {

constexpr double share_s = 0.4;  // of each measurement
constexpr size_t stream_bytes = size_t(1) << 20;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void tell(const std::string& name, double value) {
    print_output("{} {:.6g}\n", name, value);
    flush_output();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

uint32_t element_of(int of_rank, size_t bytes, size_t index) {
    return uint32_t((index + 1) * 2654435761u) ^ uint32_t(bytes * 40503u) ^ uint32_t(of_rank) << 31;
}

std::vector<uint32_t> words(int of_rank, size_t bytes) {
    std::vector<uint32_t> all(bytes / sizeof(uint32_t));
    for (size_t i = 0; i < all.size(); ++i) all[i] = element_of(of_rank, bytes, i);
    return all;
}

class Part {
  public:
    explicit Part(const RdmaPart& part)
        : rank_(part.rank), peer_(1 - part.rank), comm_(2, weft::unique_id_from_text(part.id), part.rank) {}

    // Messages in both directions, collectives and windows, with their data checked.
    void transfer() {
        for (const size_t bytes : {4, 8, 64, 220, 4096, 65'536, 1'048'580, 8'388'608}) {
            const std::vector<uint32_t> mine = words(rank_, bytes), wanted = words(peer_, bytes);
            std::vector<uint32_t> got(mine.size());
            for (int turn = 0; turn < 2; ++turn) {
                if (turn == rank_)
                    comm_.send(mine.data(), mine.size(), peer_);
                else
                    comm_.receive(got.data(), got.size(), peer_), check(got == wanted, "a message", bytes);
            }
            std::fill(got.begin(), got.end(), 0);
            comm_.send_receive(mine.data(), mine.size(), peer_, got.data(), got.size(), peer_);
            check(got == wanted, "messages in both directions", bytes);
            comm_.all_reduce(mine.data(), got.data(), got.size());
            bool right = true;
            for (size_t i = 0; i < got.size(); ++i) right = right && got[i] == mine[i] + wanted[i];
            check(right, "an all-reduce", bytes);
        }
        put();
        tell("transfers", transfers_);
    }

    void measure() {
        if (rank_ == 0) measure_registration();
        measure_latency();
        measure_stream("stream", stream_bytes, 16, false);
        measure_stream("both", stream_bytes, 16, true);
        measure_stream("rate", 8, 64, false);
        comm_.barrier();
    }

    // Calls until one fails. The failure's line is followed by the time since the last call that did not.
    void live() {
        uint32_t sum = 0;
        double since = seconds_now();
        comm_.all_reduce(&sum, 1);
        tell("alive", 1);
        try {
            for (;;) since = seconds_now(), comm_.all_reduce(&sum, 1);
        } catch (const weft::Error&) {
            tell("after_s", seconds_now() - since);
            throw;
        }
    }

  private:
    void check(bool right, const char* what, size_t bytes) {
        ++transfers_;
        if (right) return;
        print_output("wrong {} of {} bytes\n", what, bytes);
        wrong_ = true;
    }

    void put() {
        constexpr size_t bytes = 1'000'000;
        const std::vector<uint32_t> mine = words(rank_, bytes), wanted = words(peer_, bytes);
        std::vector<uint32_t> window(mine.size()), got(mine.size());
        const weftWindow_t handle = comm_.register_window(window.data(), bytes);
        comm_.put_signal(mine.data(), mine.size(), peer_, handle, 0);
        comm_.wait_signal(peer_);
        check(window == wanted, "a put", bytes);
        comm_.get_from(got.data(), got.size(), peer_, handle, 0);
        check(got == mine, "a get", bytes);
        comm_.deregister_window(handle);
    }

    // The same on both ranks: how often something of `seconds` fits the time.
    size_t repeats(double seconds) {
        float times = float(std::clamp(share_s / seconds, 3.0, 5000.0));
        comm_.all_reduce(&times, 1, weftMin);
        return size_t(times);
    }

    void ping_pong() {
        uint64_t message = 0;
        for (int turn = 0; turn < 2; ++turn)
            if (turn == rank_)
                comm_.send(&message, 1, peer_);
            else
                comm_.receive(&message, 1, peer_);
    }

    void measure_latency() {
        for (int i = 0; i < 20; ++i) ping_pong();
        double begin = seconds_now();
        for (int i = 0; i < 20; ++i) ping_pong();
        std::vector<double> times(repeats((seconds_now() - begin) / 20));
        for (double& time : times) {
            begin = seconds_now();
            ping_pong();
            time = seconds_now() - begin;
        }
        tell("latency_us", 1e6 * median(times) / 2);
    }

    // `messages` to rank 1, or in both directions, and an answer.
    void burst(std::vector<std::byte>& from, std::vector<std::byte>& to, size_t bytes, size_t messages, bool both) {
        weft::check(weftGroupStart());
        for (size_t i = 0; i < messages; ++i) {
            if (rank_ == 0 || both) comm_.send(reinterpret_cast<const uint8_t*>(&from[i * bytes]), bytes, peer_);
            if (rank_ == 1 || both) comm_.receive(reinterpret_cast<uint8_t*>(&to[i * bytes]), bytes, peer_);
        }
        weft::check(weftGroupEnd());
        uint8_t answer = 0;
        if (rank_ == 1)
            comm_.send(&answer, 1, peer_);
        else
            comm_.receive(&answer, 1, peer_);
    }

    void measure_stream(const std::string& name, size_t bytes, size_t messages, bool both) {
        std::vector<std::byte> from(bytes * messages), to(bytes * messages);
        burst(from, to, bytes, messages, both);
        double begin = seconds_now();
        burst(from, to, bytes, messages, both);
        std::vector<double> times(repeats(seconds_now() - begin));
        for (double& time : times) {
            begin = seconds_now();
            burst(from, to, bytes, messages, both);
            time = seconds_now() - begin;
        }
        const double rate = double(messages) * (both ? 2 : 1) / median(times);
        if (name == "rate")
            tell("rate_per_s", rate);
        else
            tell(name + "_mib_per_s", rate * double(bytes) / double(1 << 20));
    }

    static void measure_registration() {
        const auto devices = verbs::Devices::of_process();
        if (!devices) return;
        for (const size_t mib : {1, 64}) {
            std::vector<std::byte> memory(mib << 20, std::byte{1});
            std::vector<double> times(5);
            for (double& time : times) {
                const double begin = seconds_now();
                const auto registered =
                    verbs::Registered::make(**devices, {memory.data(), memory.size()},
                                            verbs::access::local_write | verbs::access::remote_write);
                time = seconds_now() - begin;
                if (!registered) return;
            }
            tell(fmt::format("registration_{}_us", mib), 1e6 * median(times));
        }
    }

    int rank_, peer_;
    weft::Communicator comm_;
    int transfers_ = 0;

  public:
    bool wrong_ = false;
};

// CAP_IPC_LOCK would lift the limit.
void limit_memory() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    if (syscall(SYS_capget, &header, sets) == 0) {
        sets[0].effective &= ~(1u << CAP_IPC_LOCK);
        sets[0].permitted &= ~(1u << CAP_IPC_LOCK);
        (void)syscall(SYS_capset, &header, sets);
    }
    const rlimit limit{65'536, 65'536};
    (void)setrlimit(RLIMIT_MEMLOCK, &limit);
}

}  // namespace

int run_rdma_part(const RdmaPart& wanted) {
    try {
        if (wanted.little_memory) limit_memory();
        Part part(wanted);
        if (wanted.name == "transfers") part.transfer();
        if (wanted.name == "times") part.measure();
        if (wanted.name == "alive") part.live();
        return part.wrong_ ? 1 : 0;
    } catch (const weft::Error& error) {
        print_output("error {} {} {}\n", *error.id() ? error.id() : "unknown", error.failed_rank(), error.what());
        return 1;
    }
}

}  // namespace weft::internal::tools
