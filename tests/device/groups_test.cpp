// groups_test.cpp: small all-reduces of a group on device memory, coalesced into one kernel. Each has the result that
// it would have alone, with any calls of other ranks. Dependent calls keep their order, and errors name each call.
#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/device/machine.hpp"
#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

struct Reduction {
    size_t count;
    weftDataType_t type = weftInt32;
    weftRedOp_t op = weftSum;
};

// Buffers of all reductions on one rank, one behind the other, with a gap; in place.
struct Memory {
    Memory(int device, const std::vector<Reduction>& all, std::mt19937& random) {
        size_t bytes = 0;
        for (const Reduction& one : all) {
            places.push_back(bytes);
            bytes += (one.count * size_of(one.type) + 4 + 15) / 8 * 8 + random() % 2 * 4;
            inputs.push_back(reference::mild(one.type, one.count, random));
        }
        buffer = std::make_unique<DeviceBuffer>(device, bytes);
        fill();
    }
    void fill() const {
        Bytes all(buffer_bytes());
        for (size_t i = 0; i < inputs.size(); ++i)
            std::copy(inputs[i].begin(), inputs[i].end(), all.begin() + ptrdiff_t(places[i]));
        buffer->write(all.data(), all.size());
    }
    size_t buffer_bytes() const { return places.back() + inputs.back().size(); }
    void* at(size_t i) const { return static_cast<std::byte*>(buffer->data()) + places[i]; }
    std::vector<Bytes> results() const {
        const Bytes all = buffer->read(buffer_bytes());
        std::vector<Bytes> each;
        for (size_t i = 0; i < inputs.size(); ++i)
            each.emplace_back(all.begin() + ptrdiff_t(places[i]),
                              all.begin() + ptrdiff_t(places[i] + inputs[i].size()));
        return each;
    }
    std::vector<size_t> places;
    std::vector<Bytes> inputs;
    std::unique_ptr<DeviceBuffer> buffer;
};

struct Group {
    Group(const Ranks& of, std::vector<Reduction> reductions, std::mt19937& random)
        : ranks(of), all(std::move(reductions)) {
        for (const int device : ranks.placing) memory.push_back(std::make_unique<Memory>(device, all, random));
    }
    weftResult_t call(int rank, size_t i) const {
        const auto r = size_t(rank);
        return weftAllReduce(memory[r]->at(i), memory[r]->at(i), all[i].count, all[i].type, all[i].op, ranks.comms[r],
                             ranks.streams[r]->weft());
    }
    weftResult_t calls(int rank) const {
        for (size_t i = 0; i < all.size(); ++i)
            if (const weftResult_t called = call(rank, i); called != weftSuccess) return called;
        return weftSuccess;
    }
    void enqueue() const {
        ranks.group([&](int rank) { return calls(rank); });
    }
    // Against those of the host.
    void check() const {
        std::vector<std::vector<Bytes>> expected(memory.size());
        for (size_t rank = 0; rank < memory.size(); ++rank) expected[rank] = memory[rank]->inputs;
        for (size_t i = 0; i < all.size(); ++i)
            ranks.group([&](int rank) {
                void* const data = expected[size_t(rank)][i].data();
                return weftAllReduce(data, data, all[i].count, all[i].type, all[i].op, ranks.comms[size_t(rank)],
                                     nullptr);
            });
        for (size_t rank = 0; rank < memory.size(); ++rank) {
            const std::vector<Bytes> got = memory[rank]->results();
            for (size_t i = 0; i < all.size(); ++i)
                if (got[i] != expected[rank][i])
                    FAIL_CHECK("rank " << rank << ", call " << i << " of " << all[i].count);
        }
    }
    const Ranks& ranks;
    std::vector<Reduction> all;
    std::vector<std::unique_ptr<Memory>> memory;
};

// Several of them are joined with threads that share no device.
bool joins(const Ranks& ranks) { return devices() >= ranks.count(); }
int launches() { return real_driver() ? 0 : fake::calls("cuLaunchKernelEx"); }

// While it lives.
struct ShortQueues {
    ShortQueues() { fake::add_setting("queue 4"); }
    ShortQueues(const ShortQueues&) = delete;
    ~ShortQueues() { fake::add_setting("queue 1024"); }
};

std::vector<Reduction> drawn(size_t calls, std::mt19937& random) {
    std::vector<Reduction> all;
    for (size_t i = 0; i < calls; ++i) {
        const size_t most = size_t(1) << random() % 13;  // 16 KiB at most
        all.push_back({1 + random() % most});
    }
    return all;
}

}  // namespace

TEST_CASE("small all-reduces of a group are one kernel with the results of single calls", "[groups]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : small() ? std::vector{3} : std::vector{2, 3, 8}) {
        const Ranks ranks(spread(n));
        for (const size_t calls : {3, 20, 200}) {
            const Group group(ranks, drawn(calls, random), random);
            const int before = launches();
            group.enqueue();
            ranks.finish();
            const int took = (launches() - before) / n;
            INFO(n << " ranks, " << calls << " calls, " << took << " launches");
            CHECK((!joins(ranks) || took <= int(calls / 72 + calls / 100 + 4)));
            ranks.check_healthy();
            group.check();
        }
        // Of several types and reductions neighbours that are alike are joined.
        Group mixed(ranks, drawn(40, random), random);
        std::vector<Reduction> all = mixed.all;
        for (size_t i = 0; i < all.size(); ++i) {
            all[i].type = i < 20 ? weftInt32 : weftUint64;
            all[i].op = i % 20 < 12 ? weftSum : i % 20 < 16 ? weftMax : weftMin;
            if (i == 7) all[i].count = 100'000;  // too long
            if (i == 27) all[i].count = 0;
        }
        const Group various(ranks, std::move(all), random);
        various.enqueue();
        ranks.finish();
        ranks.check_healthy();
        various.check();
    }
}

TEST_CASE("ranks need not group their calls alike", "[groups]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Ranks ranks(spread(3));
    for (int round = 0; round < 3; ++round) {
        const Group group(ranks, drawn(30, random), random);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 3; ++rank)
            threads.emplace_back([&, rank] {
                const size_t at_once = rank == 0 ? 1 : rank == 1 ? 30 : 7;
                for (size_t first = 0; first < 30; first += at_once) {
                    demand(weftGroupStart());
                    for (size_t i = first; i < std::min<size_t>(30, first + at_once); ++i) demand(group.call(rank, i));
                    demand(weftGroupEnd());
                }
            });
        for (std::thread& thread : threads) thread.join();
        ranks.finish();
        ranks.check_healthy();
        group.check();
    }
}

TEST_CASE("a group may hold more kinds of calls than plans are kept", "[groups]") {
    std::mt19937 random(25);
    const Ranks ranks(spread(2));
    std::vector<Reduction> all;  // plan_cache.hpp keeps 4096; it is full in the midst of what one kernel takes
    for (const weftDataType_t type : {weftInt32, weftUint32, weftInt64, weftUint64})
        for (const weftRedOp_t op : {weftSum, weftMax, weftMin})
            for (size_t count = 1; count <= 350; ++count) all.push_back({count, type, op});
    const Group group(ranks, std::move(all), random);
    const int before = launches();
    group.enqueue();
    ranks.finish();
    CHECK((!joins(ranks) || launches() - before < 400));
    ranks.check_healthy();
    group.check();
}

TEST_CASE("dependent calls of a group keep their order", "[groups]") {
    const Ranks ranks(spread(3));
    constexpr size_t count = 4000;  // several blocks
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (const int device : ranks.placing) buffers.push_back(std::make_unique<DeviceBuffer>(device, 3 * count * 4));
    std::vector<uint32_t> ones(3 * count, 1);
    for (const auto& buffer : buffers) buffer->write(ones.data(), 3 * count * 4);
    // By one rank alone shifted by one element: its calls overlap, the others' do not.
    ranks.group([&](int rank) {
        auto* const at = static_cast<uint32_t*>(buffers[size_t(rank)]->data());
        for (int call = 0; call < 6; ++call) {
            uint32_t* const from = rank == 1 ? at + call : at;
            uint32_t* const to = rank == 1 ? at + call + 1 : at + (call % 2 + 1) * count;
            if (const weftResult_t called =
                    weftAllReduce(from, rank == 1 ? from : to, count - 10, weftUint32, weftSum,
                                  ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
                called != weftSuccess)
                return called;
        }
        return weftSuccess;
    });
    ranks.finish();
    ranks.check_healthy();
    // Element i of call k is two ones and what rank 1 has there: that of element i + 1 of the call before.
    std::vector<uint32_t> model(3 * count, 1);
    for (int call = 0; call < 6; ++call)
        for (size_t i = 0; i < count - 10; ++i) model[size_t(call) + i] += 2;
    const Bytes got = buffers[1]->read(3 * count * 4);
    CHECK(memcmp(got.data(), model.data(), 3 * count * 4) == 0);
}

TEST_CASE("calls of another communicator on the same stream stay between those of a group", "[groups]") {
    std::mt19937 random(23);
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = 5000;
    const Ranks ranks(spread(2), &config), others(spread(2), &config);
    const Group group(ranks, drawn(12, random), random);
    const auto call = [&](int rank, size_t i) {
        const Memory& memory = *group.memory[size_t(rank)];
        const Ranks& of = i % 2 == 0 ? ranks : others;
        demand(weftAllReduce(memory.at(i), memory.at(i), group.all[i].count, weftInt32, weftSum, of.comms[size_t(rank)],
                             ranks.streams[size_t(rank)]->weft()));
    };
    std::thread one_by_one([&] {
        for (size_t i = 0; i < 12; ++i) call(1, i);
    });
    demand(weftGroupStart());
    for (size_t i = 0; i < 12; ++i) call(0, i);
    demand(weftGroupEnd());
    one_by_one.join();
    ranks.finish();
    ranks.check_healthy();
    others.check_healthy();
    group.check();
}

TEST_CASE("one thread's ranks launch in step, however their calls are joined, where queues are short", "[groups]") {
    std::mt19937 random(29);
    for (const char* algo : {static_cast<const char*>(nullptr), "two_shot"}) {  // of two_shot none stay joined
        INFO("algo " << (algo ? algo : "any"));
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.timeoutMs = 20'000;
        config.algo = algo;
        const Ranks ranks(spread(3), &config);
        std::vector<Reduction> all;  // 12 times what one kernel takes
        for (size_t i = 0; i < 240; ++i) all.push_back({1 + random() % 20, i / 20 % 2 ? weftInt32 : weftUint64});
        const Group group(ranks, std::move(all), random);
        const Stream second(ranks.placing[1]);
        int on_host[3] = {1, 2, 3};
        const ShortQueues queues;
        ranks.group([&](int rank) {
            const auto self = size_t(rank);
            if (rank != 1) demand(group.calls(rank));
            // On two streams in turn none is joined.
            for (size_t i = 0; rank == 1 && i < group.all.size(); ++i) {
                void* const data = group.memory[1]->at(i);
                demand(weftAllReduce(data, data, group.all[i].count, group.all[i].type, weftSum, ranks.comms[1],
                                     i % 2 ? ranks.streams[1]->weft() : second.weft()));
            }
            return weftAllReduce(&on_host[rank], &on_host[rank], 1, weftInt32, weftSum, ranks.comms[self], nullptr);
        });
        ranks.finish();
        second.finish();
        ranks.check_healthy();
        for (const int sum : on_host) CHECK(sum == 6);
        group.check();
    }
}

TEST_CASE("coalesced calls are captured, prepared and replayed", "[groups]") {
    std::mt19937 random(21);
    const Ranks ranks(spread(3));
    const Group group(ranks, drawn(100, random), random);
    {
        const Captured captured(ranks, [&] { group.enqueue(); });
        for (int replay = 0; replay < 3; ++replay) {
            captured.launch();
            ranks.finish();
            ranks.check_healthy();
            group.check();
            for (const auto& memory : group.memory) memory->fill();
        }
    }
    weftPrepared_t prepared = nullptr;
    demand(weftGroupStart());
    for (int rank = 0; rank < 3; ++rank) demand(group.calls(rank));
    demand(weftGroupPrepare(&prepared));
    for (int start = 0; start < 3; ++start) {
        demand(weftPreparedStart(prepared));
        ranks.finish();
        group.check();
        for (const auto& memory : group.memory) memory->fill();
    }
    demand(weftPreparedDestroy(prepared));
}

// Groups of all ranks, in which rank 1 has another count in one place: a mismatch on all ranks that names a call of
// that place.
static void check_differing(const Ranks& ranks, const Group& group, size_t place, size_t other) {
    ranks.differing_group([&](int rank) {
        for (size_t i = 0; i < group.all.size(); ++i) {
            const auto r = size_t(rank);
            const size_t count = rank == 1 && i == place ? other : group.all[i].count;
            if (const weftResult_t called = weftAllReduce(group.memory[r]->at(i), group.memory[r]->at(i), count,
                                                          weftInt32, weftSum, ranks.comms[r], ranks.streams[r]->weft());
                called != weftSuccess)
                return called;
        }
        return weftSuccess;
    });
    ranks.finish();
    // Of the others a rank sees what they called last: of one of the two that differ the sentence has the call.
    const auto called = [](size_t count) { return "called all_reduce of " + std::to_string(count) + " int32"; };
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(ranks.await_failure(rank) == weftMismatch);
        CHECK_REFUSED(group.call(rank, 0), ranks.comms[size_t(rank)], "mismatch.call");
        CHECK_THAT(weftGetLastError(ranks.comms[size_t(rank)]),
                   Catch::Contains(called(group.all[place].count)) || Catch::Contains(called(other)));
    }
}

TEST_CASE("a call of a joined group that differs is named as it was called", "[groups]") {
    std::mt19937 random(22);
    const Ranks ranks(spread(3));
    const Group group(ranks, {{10}, {20}, {30}, {40}, {50}}, random);
    check_differing(ranks, group, 2, 29);
}

TEST_CASE("among coalesced calls of several blocks the one that differs is named, not the next one", "[groups]") {
    std::mt19937 random(24);
    const Ranks ranks(spread(3));
    // In all but two block 0 has part alone. To rank 1 the one that differs is such a call, too: its other blocks go on
    // to the last.
    std::vector<Reduction> all(40, Reduction{10});
    all.push_back({700});
    all.push_back({800});
    const Group group(ranks, std::move(all), random);
    check_differing(ranks, group, 40, 29);
    for (const weftComm_t comm : ranks.comms)
        CHECK_THAT(weftGetLastError(comm), !Catch::Contains("all_reduce of 800 int32"));
}

}  // namespace weft::internal::test
