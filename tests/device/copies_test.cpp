// copies_test.cpp: all-gather and all-to-all by copy engines (blockPolicy): results, refusals, graphs, failures.
#include <atomic>
#include <cstring>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

namespace {

using Kind = DeviceBuffer::Kind;

weftConfig_t without_kernels() {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blockPolicy = WEFT_BLOCK_POLICY_ZERO;
    return config;
}

int kernels() { return fake::calls("cuLaunchKernelEx"); }

// The buffers of an all-gather or all-to-all of parts of so many bytes.
class Parts {
  public:
    enum class Which { gather, to_all };
    // The kinds of memory are those of rank 1.
    Parts(const Ranks& of, Which collective, size_t part_bytes, bool gathers_in_place = false, Kind sent = Kind::plain,
          Kind received = Kind::plain)
        : ranks(of), which(collective), bytes(part_bytes), in_place(gathers_in_place) {
        for (int rank = 0; rank < ranks.count(); ++rank) {
            const auto buffer = [&](size_t size, Kind kind) {
                return std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], std::max<size_t>(size, 1), 8,
                                                      rank == 1 ? kind : Kind::plain);
            };
            sends.push_back(buffer(sent_bytes(), sent));
            receives.push_back(buffer(all_bytes(), received));
        }
    }
    size_t all_bytes() const { return bytes * size_t(ranks.count()); }
    size_t sent_bytes() const { return which == Which::gather ? bytes : all_bytes(); }
    // The bytes from rank `from` to rank `to`.
    Bytes part(int from, int to, int seed) const {
        Bytes values(bytes);
        for (size_t i = 0; i < bytes; ++i)
            values[i] = std::byte(seed + 31 * from + (which == Which::to_all ? 7 * to : 0) + int(i % 251));
        return values;
    }
    void fill(int seed) const {
        for (int rank = 0; rank < ranks.count(); ++rank) {
            Bytes values;
            for (int to = 0; to < (which == Which::to_all ? ranks.count() : 1); ++to) {
                const Bytes one = part(rank, to, seed);
                values.insert(values.end(), one.begin(), one.end());
            }
            Bytes place(all_bytes(), std::byte(0xee));
            if (in_place) memcpy(place.data() + bytes * size_t(rank), values.data(), bytes);
            receives[size_t(rank)]->write(place.data(), place.size());
            sends[size_t(rank)]->write(values.data(), values.size());
        }
    }
    weftResult_t call(int rank, bool back = false) const {
        const auto r = size_t(rank);
        const void* send = (back ? receives : sends)[r]->data();
        void* const receive = (back ? sends : receives)[r]->data();
        if (in_place) send = static_cast<std::byte*>(receive) + bytes * r;
        return which == Which::to_all
                   ? weftAlltoAll(send, receive, bytes, weftUint8, ranks.comms[r], ranks.streams[r]->weft())
                   : weftAllGather(send, receive, bytes, weftUint8, ranks.comms[r], ranks.streams[r]->weft());
    }
    void call_all(bool back = false) const {
        ranks.group([&](int rank) { return call(rank, back); });
    }
    // The first rank whose result is wrong; -1: none.
    int wrong(int seed) const {
        for (int rank = 0; rank < ranks.count(); ++rank) {
            const Bytes got = receives[size_t(rank)]->read(all_bytes());
            for (int from = 0; from < ranks.count(); ++from)
                if (memcmp(got.data() + bytes * size_t(from), part(from, rank, seed).data(), bytes) != 0) return rank;
        }
        return -1;
    }
    const Ranks& ranks;
    const Which which;
    const size_t bytes;
    const bool in_place;
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
};

// Holds up a rank's stream.
struct Gate {
    explicit Gate(const Stream& stream) {
        const auto wait = [](void* open) {
            while (!static_cast<std::atomic<bool>*>(open)->load()) usleep(1000);
        };
        const Current current(stream.device);
        demand(cuLaunchHostFunc(stream.handle, wait, &open));
    }
    std::atomic<bool> open{false};
};

}  // namespace

TEST_CASE("copy engines gather and exchange parts of any size, and launch no kernel", "[engines][fake]") {
    const weftConfig_t config = without_kernels();
    for (const int count : small() ? std::vector{3} : std::vector{1, 2, 3, 8}) {
        if (count > devices()) continue;
        const Ranks ranks(spread(count), &config);
        for (const size_t bytes : {size_t(1), size_t(4097), size_t(300'001)})
            for (const auto& [which, in_place] : {std::pair(Parts::Which::gather, false),
                                                  {Parts::Which::gather, true},
                                                  {Parts::Which::to_all, false}}) {
                INFO(count << " ranks, " << bytes << " bytes, " << int(which) << (in_place ? ", in place" : ""));
                const Parts parts(ranks, which, bytes, in_place);
                parts.fill(1);
                const int before = kernels(), copies = fake::calls("cuMemcpyAsync");
                parts.call_all();
                ranks.finish();
                CHECK(parts.wrong(1) == -1);
                CHECK(kernels() == before);
                CHECK(fake::calls("cuMemcpyAsync") - copies == count * (count - in_place + 4));  // four of the clock
            }
        ranks.check_healthy();
    }
}

TEST_CASE("calls by copy engines without data are kernels", "[engines][fake]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(2), &config);
    const Parts parts(ranks, Parts::Which::gather, 0);
    const int before = kernels();
    parts.call_all();
    ranks.finish();
    CHECK(kernels() - before == 2);
    ranks.check_healthy();
}

TEST_CASE("calls by copy engines may follow each other, and kernels, in the same buffers", "[engines]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(4), &config);
    const Parts parts(ranks, Parts::Which::to_all, 100'000);
    weftCallConfig_t with_kernels = WEFT_CALL_CONFIG_INITIALIZER;
    with_kernels.blockPolicy = WEFT_BLOCK_POLICY_DEFAULT;
    parts.fill(2);
    for (int round = 0; round < 11; ++round) {  // there and back
        for (weftComm_t comm : ranks.comms)
            demand(weftCommSetCallConfig(comm, round % 4 == 3 ? &with_kernels : nullptr));
        parts.call_all(round % 2 == 1);
    }
    ranks.finish();
    CHECK(parts.wrong(2) == -1);
    ranks.check_healthy();
}

TEST_CASE("kernels move the data if the send buffer of one rank cannot be mapped", "[engines][fake]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(3), &config);
    const Parts unmapped(ranks, Parts::Which::gather, 5000, false, Kind::managed);
    const int before = kernels();
    unmapped.fill(3);
    unmapped.call_all();
    ranks.finish();
    CHECK(unmapped.wrong(3) == -1);
    CHECK(kernels() - before == 3);
    ranks.check_healthy();
}

TEST_CASE("copy engines write receive buffers of any device memory", "[engines][fake]") {
    if (devices() < 3) return;
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(3), &config);
    for (const Kind kind : {Kind::managed, Kind::pool}) {
        const Parts parts(ranks, Parts::Which::to_all, 5000, false, Kind::plain, kind);
        const int before = kernels();
        parts.fill(4);
        parts.call_all();
        ranks.finish();
        CHECK(parts.wrong(4) == -1);
        CHECK(kernels() == before);
    }
    ranks.check_healthy();
}

TEST_CASE("kernels move the data if ranks of one process share a device", "[engines][fake]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks({0, devices() - 1, 0}, &config);
    const Parts parts(ranks, Parts::Which::to_all, 5000);
    const int before = kernels();
    parts.fill(6);
    parts.call_all();
    ranks.finish();
    CHECK(parts.wrong(6) == -1);
    CHECK(kernels() - before == 3);
    ranks.check_healthy();
}

TEST_CASE("calls by copy engines become part of graphs", "[engines]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(3), &config);
    for (const auto which : {Parts::Which::gather, Parts::Which::to_all}) {
        const Parts parts(ranks, which, 70'000);
        parts.fill(5);
        const Captured captured(ranks, [&] { parts.call_all(); });
        for (int seed = 5; seed < 8; ++seed) {
            parts.fill(seed);
            captured.launch();
            captured.launch();
            parts.call_all();
            ranks.finish();
            CHECK(parts.wrong(seed) == -1);
        }
    }
    ranks.check_healthy();
}

TEST_CASE("a stream that waits for a late rank without a kernel ends at the deadline, which names the rank",
          "[engines]") {
    CHECK(with_growing_limit(300, [&](int64_t timeout_ms) -> std::string {
              weftConfig_t config = without_kernels();
              config.timeoutMs = timeout_ms;
              const Ranks ranks(spread(2), &config);
              const Parts parts(ranks, Parts::Which::gather, 1000);
              Gate gate(*ranks.streams[1]);
              for (int call = 0; call < 3; ++call) parts.call_all();
              ranks.streams[0]->finish();
              const weftResult_t failure = ranks.await_failure(0);
              gate.open = true;
              ranks.finish();
              if (failure != weftTimeout) return "there is no deadline";
              CHECK_REFUSED(parts.call(0), ranks.comms[0], "timeout.collective", 1, 0);
              if (devices() > 1)
                  CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("the stream of rank 0 waited"));
              return "";
          }) == "");
}

TEST_CASE("an abort ends the waits of streams without kernels", "[engines]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(2), &config);
    const Parts parts(ranks, Parts::Which::to_all, 1000);
    Gate gate(*ranks.streams[1]);
    for (int call = 0; call < 3; ++call) parts.call_all();
    demand(weftCommAbort(ranks.comms[0]));
    ranks.streams[0]->finish();
    CHECK(ranks.await_failure(1) == weftRemoteError);
    gate.open = true;
    ranks.streams[1]->finish();
}

TEST_CASE("an abort ends the waits of replayed graphs without kernels", "[engines]") {
    const weftConfig_t config = without_kernels();
    const Ranks ranks(spread(2), &config);
    const Parts parts(ranks, Parts::Which::gather, 1000);
    const Captured captured(ranks, [&] { parts.call_all(); });
    captured.launch(0);
    demand(weftCommAbort(ranks.comms[0]));
    const Stream& stream = *ranks.streams[0];
    const Current current(stream.device);
    CHECK(eventually([&] { return cuStreamQuery(stream.handle) == CUDA_SUCCESS; }));
}

TEST_CASE("ranks that differ in a call by copy engines, or in its policy, get an error", "[engines]") {
    const weftConfig_t config = without_kernels();
    for (const bool other_policy : {false, true}) {
        INFO(other_policy);
        const Ranks ranks(spread(2), &config);
        const Parts parts(ranks, Parts::Which::gather, 2000);
        weftCallConfig_t with_kernels = WEFT_CALL_CONFIG_INITIALIZER;
        with_kernels.blockPolicy = WEFT_BLOCK_POLICY_DEFAULT;
        if (other_policy) demand(weftCommSetCallConfig(ranks.comms[1], &with_kernels));
        demand(weftGroupStart());
        for (int rank = 0; rank < 2; ++rank)
            CHECK(weftAllGather(parts.sends[size_t(rank)]->data(), parts.receives[size_t(rank)]->data(),
                                other_policy || rank == 0 ? 2000 : 1999, weftUint8, ranks.comms[size_t(rank)],
                                ranks.streams[size_t(rank)]->weft()) == weftSuccess);
        (void)weftGroupEnd();
        ranks.finish();
        for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftMismatch);
        CHECK_REFUSED(parts.call(0), ranks.comms[0], other_policy ? "mismatch.call" : "mismatch.count");
    }
}

TEST_CASE("blockPolicy has two values", "[engines]") {
    weftConfig_t config = without_kernels();
    const Ranks ranks(spread(1), &config);
    weftCallConfig_t call = WEFT_CALL_CONFIG_INITIALIZER;
    call.blockPolicy = 2;
    CHECK_REFUSED(weftCommSetCallConfig(ranks.comms[0], &call), ranks.comms[0], "argument.config");
    config.blockPolicy = -1;
    weftComm_t child = nullptr;
    CHECK_REFUSED(weftCommSplit(ranks.comms[0], 0, 0, &child, &config), ranks.comms[0], "argument.config");
    ranks.check_healthy();
}

}  // namespace weft::internal::test
