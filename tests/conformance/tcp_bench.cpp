// tcp_bench.cpp: the tcp transport, or another one, over loopback against a bare loop over two sockets, in one run of two polling
// processes. Measured: the one-way time of a small message, and exchanges of large ones. Not a test: run it by hand on
// a quiet machine.
// Arguments: slot bytes (262144), depth (2), socket buffer bytes of the bare loop (0: the kernel's), rounds (10), transport
// (tcp).
// WEFT_SOCKET_BUFFER_BYTES is the transport's.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/net/secret.hpp"
#include "src/net/socket.hpp"
#include "src/registry.hpp"

using namespace weft::internal;

namespace {

[[noreturn]] void stop(const std::string& why) {
    fprintf(stderr, "tcp_bench: %s\n", why.c_str());
    _exit(1);
}
template <class T>
T must(Result<T> result) {
    if (!result) stop(result.status().sentence());
    return std::move(*result);
}
void must(const Status& status) {
    if (!status) stop(status.sentence());
}

const Transport* transport = nullptr;

// Shared by the two processes: blobs, and a barrier before each measurement.
struct InCommon {
    net::Secret secret;
    Blob blobs[2];
    std::atomic<uint32_t> met{0};
};

void meet(InCommon& shared) {
    static uint32_t meetings = 0;
    shared.met.fetch_add(1);
    for (++meetings; shared.met.load() < 2 * meetings;) sched_yield();
}

// One process's end of both directions. All measurements are built on these two functions.
class Ends {
  public:
    virtual ~Ends() = default;
    virtual void small_out(const std::byte* data, size_t bytes) = 0;
    virtual void small_in(std::byte* data, size_t bytes) = 0;
    // Both ways at once.
    virtual void exchange(const std::byte* out, std::byte* in, size_t bytes) = 0;
};

class BareEnds final : public Ends {
  public:
    explicit BareEnds(int socket) : socket_(socket) {}
    void small_out(const std::byte* data, size_t bytes) override {
        for (size_t done = 0; done < bytes;) done += must(net::write_some(socket_, data + done, bytes - done));
    }
    void small_in(std::byte* data, size_t bytes) override {
        for (size_t done = 0; done < bytes;) done += must(net::read_some(socket_, data + done, bytes - done));
    }
    void exchange(const std::byte* out, std::byte* in, size_t bytes) override {
        constexpr size_t piece = size_t(256) << 10;
        for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
            size_t moved = 0;
            if (sent < bytes) moved += must(net::write_some(socket_, out + sent, std::min(piece, bytes - sent)));
            sent += moved;
            size_t came = 0;
            if (got < bytes) came = must(net::read_some(socket_, in + got, std::min(piece, bytes - got)));
            got += came;
            if (moved + came == 0) sched_yield();
        }
    }

  private:
    int socket_;
};

class TransportEnds final : public Ends {
  public:
    enum class Way { straight, staged };
    TransportEnds(InCommon& shared, int rank, int depth, size_t slot_bytes, Way way)
        : identity_(net::Identity::of(shared.secret)), slot_bytes_(slot_bytes), way_(way) {
        ConnectionOptions options{rank, 1 - rank, 0, depth, slot_bytes, nullptr, nullptr, &identity_};
        receiver_ = must(transport->listen(options, shared.blobs[rank]));
        meet(shared);
        sender_ = must(transport->connect(options, shared.blobs[1 - rank]));
        std::byte byte[1] = {};
        send(byte, 1);
        receive(byte, 1);
        while (!must(sender_->progress())) {
        }
        meet(shared);
    }
    void small_out(const std::byte* data, size_t bytes) override { send(data, bytes); }
    void small_in(std::byte* data, size_t bytes) override { receive(data, bytes); }
    void exchange(const std::byte* out, std::byte* in, size_t bytes) override {
        size_t sent = 0, got = 0;
        while (sent < bytes || got < bytes) {
            bool moved = false;
            if (sent < bytes) {
                const size_t piece = std::min(slot_bytes_, bytes - sent);
                if (try_send(out + sent, piece)) {
                    sent += piece;
                    moved = true;
                }
            }
            if (got < bytes) {
                const size_t piece = std::min(slot_bytes_, bytes - got);
                if (try_receive(in + got, piece)) {
                    got += piece;
                    moved = true;
                }
            }
            if (!moved) {
                must(sender_->progress());
                sched_yield();
            }
        }
        while (!must(sender_->progress())) sched_yield();
    }

  private:
    bool try_send(const std::byte* data, size_t bytes) {
        if (way_ == Way::straight) return must(sender_->send(data, {bytes, 0, 0}));
        const Slot slot = must(sender_->acquire());
        if (!slot) return false;
        memcpy(slot.data, data, bytes);
        must(sender_->publish({bytes, 0, 0}));
        return true;
    }
    bool try_receive(std::byte* data, size_t bytes) {
        SlotInfo info;
        if (way_ == Way::straight) return must(receiver_->receive_into(data, bytes, info));
        const Slot slot = must(receiver_->receive(info));
        if (!slot) return false;
        memcpy(data, slot.data, info.bytes);
        must(receiver_->release());
        return true;
    }
    void send(const std::byte* data, size_t bytes) {
        while (!try_send(data, bytes)) {
        }
    }
    void receive(std::byte* data, size_t bytes) {
        while (!try_receive(data, bytes)) must(sender_->progress());
    }

    net::Identity identity_;
    size_t slot_bytes_;
    Way way_;
    std::unique_ptr<Receiver> receiver_;
    std::unique_ptr<Sender> sender_;
};

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

struct Subject {
    const char* name;
    std::unique_ptr<Ends> ends;
};

}  // namespace

int main(int count, char** arguments) {
    const auto argument = [&](int index, long standard) { return count > index ? atol(arguments[index]) : standard; };
    const size_t slot_bytes = size_t(argument(1, 256 << 10));
    const int depth = int(argument(2, 2)), buffer = int(argument(3, 0)), tries = int(argument(4, 10));
    auto* shared =
        new (mmap(nullptr, sizeof(InCommon), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) InCommon;
    net::random_bytes(shared->secret.key.data(), shared->secret.key.size());

    auto listener = must(net::open_listener(must(net::Address::parse("127.0.0.1"))));
    if (buffer > 0) {
        setsockopt(listener.number(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        setsockopt(listener.number(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    }
    const net::Address address = net::local_address(listener.number());
    const int rank = fork() == 0 ? 1 : 0;
    if (rank == 1) prctl(PR_SET_PDEATHSIG, SIGKILL);  // it polls: nobody may leave it behind
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(rank, &own);
    sched_setaffinity(0, sizeof own, &own);
    Fd bare;
    if (rank == 1) {
        bare = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (buffer > 0) {
            setsockopt(bare.number(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
            setsockopt(bare.number(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
        }
        if (connect(bare.number(), address.raw(), address.raw_bytes()) != 0) stop("no connection");
    } else {
        while (!bare) bare = Fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    const int one = 1;
    setsockopt(bare.number(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

    const std::string name = count > 5 ? arguments[5] : "tcp";
    for (const Transport* row : registry::transports())
        if (row->name == name) transport = row;
    if (!transport) stop("there is no transport " + name);
    std::vector<Subject> subjects;
    subjects.push_back({"bare", std::make_unique<BareEnds>(bare.number())});
    using Way = TransportEnds::Way;
    subjects.push_back({"straight", std::make_unique<TransportEnds>(*shared, rank, depth, slot_bytes, Way::straight)});
    subjects.push_back({"staged", std::make_unique<TransportEnds>(*shared, rank, depth, slot_bytes, Way::staged)});

    const size_t largest = size_t(64) << 20;
    std::vector<std::byte> out(largest, std::byte(1 + rank)), in(largest, std::byte{9});
    if (rank == 0) printf("slot %zu KiB, depth %d, us, the least of many\n%-10s", slot_bytes >> 10, depth, "bytes");
    if (rank == 0)
        for (const Subject& subject : subjects) printf("%12s", subject.name);
    if (rank == 0) printf("   straight/bare\n");
    for (const size_t bytes : {size_t(32), size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, largest}) {
        // Short rounds and many: the least of them fell into a quiet moment.
        const int repeats = bytes <= 4096 ? 50 : bytes <= 65536 ? 10 : 1;
        const int rounds = bytes <= size_t(1) << 20 ? 40 * tries : tries;
        std::vector<std::vector<double>> times(subjects.size());
        for (int round = 0; round < rounds; ++round)
            for (size_t which = 0; which < subjects.size(); ++which) {
                Ends& ends = *subjects[which].ends;
                meet(*shared);
                const int64_t begin = now_us();
                for (int repeat = 0; repeat < repeats; ++repeat) {
                    if (bytes > 32) {
                        ends.exchange(out.data(), in.data(), bytes);
                    } else if (rank == 0) {
                        ends.small_out(out.data(), bytes);
                        ends.small_in(in.data(), bytes);
                    } else {
                        ends.small_in(in.data(), bytes);
                        ends.small_out(out.data(), bytes);
                    }
                }
                const double us = double(now_us() - begin) / repeats;
                times[which].push_back(bytes > 32 ? us : us / 2);
                if (in[0] != std::byte(2 - rank) || in[bytes - 1] != std::byte(2 - rank)) stop("wrong bytes came");
            }
        if (rank != 0) continue;
        printf("%-10zu", bytes);
        for (const auto& each : times) printf("%12.2f", least(each));
        printf("%12.2f\n", least(times[1]) / least(times[0]));
        fflush(stdout);
    }
    meet(*shared);
    if (rank == 0) wait(nullptr);
    return 0;
}
