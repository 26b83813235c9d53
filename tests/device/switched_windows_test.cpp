// switched_windows_test.cpp: collectives on windows and registered buffers of weftMemAlloc memory behind the switch.
// Results in place and staged, what keeps memory from the switch, and that all is given back. On eight GPUs of the fake
// driver.
#include "src/gpu/kernels/kernels.hpp"
#include "tests/device/calls.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

namespace {

constexpr std::byte mark{0xa5};

// Memory with as many bytes of each rank, at `offset` of an allocation. unlike: the last rank's offset is another one.
class Parts {
  public:
    Parts(const Ranks& ranks, size_t bytes, size_t offset = 0, bool unlike = false,
          DeviceBuffer::Kind kind = DeviceBuffer::Kind::weft)
        : ranks_(ranks), bytes_(bytes) {
        for (int rank = 0; rank < ranks.count(); ++rank)
            parts_.push_back(std::make_unique<DeviceBuffer>(
                ranks.placing[size_t(rank)], bytes, offset + (unlike && rank == ranks.count() - 1 ? 64 : 0), kind));
    }
    Parts(const Parts&) = delete;
    std::byte* at(int rank, size_t offset) const {
        return static_cast<std::byte*>(parts_[size_t(rank)]->data()) + offset;
    }
    // All of a rank's part: marks, and at `offset` this.
    void write(int rank, size_t offset, const Bytes& content) const {
        Bytes all(bytes_, mark);
        std::copy(content.begin(), content.end(), all.begin() + ptrdiff_t(offset));
        parts_[size_t(rank)]->write(all.data(), all.size());
    }
    Bytes read(int rank) const { return parts_[size_t(rank)]->read(bytes_); }

  protected:
    const Ranks& ranks_;
    size_t bytes_;
    std::vector<std::unique_ptr<DeviceBuffer>> parts_;
};

class Window : public Parts {
  public:
    template <class... Place>
    explicit Window(const Ranks& ranks, size_t bytes, Place... place)
        : Parts(ranks, bytes, place...), handles_(ranks.comms.size()) {
        ranks.group([&](int rank) {
            return weftCommWindowRegister(ranks.comms[size_t(rank)], at(rank, 0), bytes, &handles_[size_t(rank)],
                                          WEFT_WIN_DEFAULT);
        });
    }
    ~Window() {
        ranks_.group(
            [&](int rank) { return weftCommWindowDeregister(ranks_.comms[size_t(rank)], handles_[size_t(rank)]); });
    }

  private:
    std::vector<weftWindow_t> handles_;
};

// Registered buffers. Ranks put them behind the switch in their own time.
class Registered : public Parts {
  public:
    template <class... Place>
    explicit Registered(const Ranks& ranks, size_t bytes, Place... place)
        : Parts(ranks, bytes, place...), handles_(ranks.comms.size()) {
        for (int rank = 0; rank < ranks.count(); ++rank)
            demand(weftCommRegister(ranks.comms[size_t(rank)], at(rank, 0), bytes, &handles_[size_t(rank)]));
    }
    ~Registered() {
        for (int rank = 0; rank < ranks_.count(); ++rank)
            demand(weftCommDeregister(ranks_.comms[size_t(rank)], handles_[size_t(rank)]));
    }

  private:
    std::vector<void*> handles_;
};

// Where a call's buffers lie in two windows, or both in the first.
struct Places {
    size_t send = 0, receive = 0;
    bool in_place = false;
    size_t receive_of_last = 0;  // the last rank receives so many bytes further behind
};

// Makes the call on all ranks, and checks all bytes of the windows that it may write.
void check(const Ranks& ranks, const Parts& from, const Parts& to, const Call& call, Places places) {
    const int n = ranks.count();
    const size_t part = call.bytes();
    const Parts& target = places.in_place ? from : to;
    const auto begin_of_receive = [&](int rank) {
        if (!places.in_place) return places.receive + (rank == n - 1 ? places.receive_of_last : 0);
        return places.send + (call.input_held(rank) == Held::all && call.output_held(rank) != Held::all
                                  ? first_held(call.output_held(rank), rank, part)
                                  : 0);
    };
    const auto begin_of_send = [&](int rank) {
        const bool within = places.in_place && call.input_held(rank) != Held::nothing;
        return places.send +
               (within && call.output_held(rank) == Held::all ? first_held(call.input_held(rank), rank, part) : 0);
    };
    for (int rank = 0; rank < n; ++rank) {
        to.write(rank, 0, {});
        from.write(rank, begin_of_send(rank), call.inputs[size_t(rank)]);
    }
    ranks.group([&](int rank) {
        const void* const send = from.at(rank, begin_of_send(rank));
        void* const receive = target.at(rank, begin_of_receive(rank));
        const size_t count = call.operation().count;
        const weftComm_t comm = ranks.comms[size_t(rank)];
        const weftStream_t stream = ranks.streams[size_t(rank)]->weft();
        const auto op = weftRedOp_t(call.op);
        switch (call.collective()) {
            case Collective::all_reduce: return weftAllReduce(send, receive, count, call.type, op, comm, stream);
            case Collective::reduce_scatter:
                return weftReduceScatter(send, receive, count, call.type, op, comm, stream);
            case Collective::all_gather: return weftAllGather(send, receive, count, call.type, comm, stream);
            default: return weftBroadcast(send, receive, count, call.type, call.root, comm, stream);
        }
    });
    ranks.finish();
    ranks.check_healthy();
    const std::vector<Bytes> right = expected(call);
    std::vector<Bytes> got;
    for (int rank = 0; rank < n; ++rank) {
        const Bytes all = target.read(rank);
        const auto begin = all.begin() + ptrdiff_t(begin_of_receive(rank));
        const auto end = begin + ptrdiff_t(right[size_t(rank)].size());
        got.emplace_back(begin, end);
        const auto marked = [](std::byte one) { return one == mark; };
        if (!places.in_place) CHECK((std::all_of(all.begin(), begin, marked) && std::all_of(end, all.end(), marked)));
    }
    if (const auto where = difference(call, got, right)) FAIL_CHECK(*where);
}

Call call_of(Collective collective, weftDataType_t type, int n, size_t count, std::mt19937& random) {
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    REQUIRE(call.algorithm);
    call.root = facts_of(collective).rooted ? int(random() % unsigned(n)) : -1;
    call.type = type;
    for (int rank = 0; rank < n; ++rank)
        call.inputs.push_back(
            reference::mild(type, count * size_t(parts_held(call.input_held(rank), parts_of(collective, n))), random));
    call.tile_bytes = std::max<size_t>(64, call.bytes());
    return call;
}

constexpr Collective switched_collectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                               Collective::all_gather, Collective::broadcast};

// A few calls of each collective.
void check_some(const Ranks& ranks, const Parts& from, const Parts& to, std::mt19937& random) {
    for (const Collective collective : switched_collectives)
        for (const size_t count : {size_t(1), size_t(2048)})
            check(ranks, from, to, call_of(collective, weftFloat32, ranks.count(), count, random),
                  {64, 128, random() % 2 == 0, random() % 2 * 16});
}

}  // namespace

TEST_CASE("collectives on windows behind the switch are right for every type, count and place", "[.][multicast]") {
    std::mt19937 random(seed());
    for (const int n : {2, 3, 8}) {
        const Ranks ranks(spread(n));
        const size_t bytes = size_t(3) << 20;
        const int bound = fake::calls("cuMulticastBindMem");
        const Window from(ranks, bytes), to(ranks, bytes, n == 3 ? 4096 : 0);
        CHECK(fake::calls("cuMulticastBindMem") == bound + 2 * n);
        for (const Collective collective : switched_collectives)
            for (const weftDataType_t type : {weftFloat32, weftFloat16, weftBfloat16, weftInt32, weftInt8})
                for (const size_t count : {size_t(0), size_t(1), size_t(1001), size_t(4096)}) {
                    if (random() % 3 != 0) continue;
                    const Call call = call_of(collective, type, n, count, random);
                    INFO(call.text());
                    const size_t send = 16 * (random() % 100), receive = 16 * (random() % 100);
                    check(ranks, from, to, call, {send, receive, random() % 2 == 0});
                    // At no multiple of 16 bytes, and not at the same place on all ranks.
                    check(ranks, from, to, call, {send + 8, receive, false});
                    check(ranks, from, to, call, {send, receive, false, 16});
                }
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
            for (int type = 0; type < weftNumTypes; ++type)
                for (int op = 0; op < weftNumOps; ++op) {
                    if (!cuda::multicast_reduces(weftDataType_t(type), weftRedOp_t(op)) || random() % 3 != 0) continue;
                    Call call = call_of(collective, weftDataType_t(type), n, 16 * (1 + random() % 60), random);
                    call.op = weftRedOp_t(op);
                    INFO(call.text());
                    check(ranks, from, to, call, {16 * (random() % 100), 16 * (random() % 100), random() % 2 == 0});
                }
        // More than half of staging memory.
        const Call call = call_of(Collective::all_reduce, weftBfloat16, n, 600'000, random);
        check(ranks, from, to, call, {0, 16, false});
    }
}

TEST_CASE("collectives on registered buffers are right before and after they lie behind the switch", "[.][multicast]") {
    std::mt19937 random(seed());
    for (const int n : {2, 3}) {
        const Ranks ranks(spread(n));
        const int bound = fake::calls("cuMulticastBindMem"), unbound = fake::calls("cuMulticastUnbind");
        {
            const Registered from(ranks, size_t(3) << 20), to(ranks, size_t(3) << 20, n == 3 ? 4096 : 0);
            check_some(ranks, from, to, random);
            CHECK(eventually([&] { return fake::calls("cuMulticastBindMem") == bound + 2 * n; }));
            for (int round = 0; round < 4; ++round) check_some(ranks, from, to, random);
        }
        CHECK(eventually([&] { return fake::calls("cuMulticastUnbind") >= unbound + 2 * n; }));
    }
}

TEST_CASE("registered buffers that cannot lie behind the switch serve collectives all the same", "[.][multicast]") {
    std::mt19937 random(seed());
    {
        const Ranks ranks(spread(3));
        const Registered good(ranks, 1 << 20), plain(ranks, 1 << 20, 0, false, DeviceBuffer::Kind::plain),
            unlike(ranks, 1 << 20, 0, true);
        for (int round = 0; round < 2; ++round) {
            check_some(ranks, plain, unlike, random);
            check_some(ranks, good, unlike, random);
            check_some(ranks, plain, good, random);
        }
    }
    {
        // One rank registers a buffer more, so the numbers of the next ones differ.
        const Ranks ranks(spread(3));
        const DeviceBuffer one(0, 5 << 20, 0, DeviceBuffer::Kind::weft);
        void* handle = nullptr;
        demand(weftCommRegister(ranks.comms[0], one.data(), 5 << 20, &handle));
        const Registered next(ranks, 1 << 20), last(ranks, 9 << 20);
        for (int round = 0; round < 3; ++round) check_some(ranks, next, last, random);
        demand(weftCommDeregister(ranks.comms[0], handle));
    }
    const Ranks ranks(spread(3));
    const Registered good(ranks, 1 << 20);
    for (const std::string fault : {"cuMulticastCreate 1", "cuMemImportFromShareableHandle 1", "cuMulticastAddDevice 2",
                                    "cuMulticastBindMem 3", "cuMemMap 4"}) {
        INFO(fault);
        const std::string function = fault.substr(0, fault.find(' '));
        const int before = fake::calls(function);
        const int number = std::stoi(fault.substr(fault.find(' ')));
        fake::add_setting("fault " + fault + " 802");
        const Registered from(ranks, 1 << 20);
        // The fault must not be left for the next ones. The allocations of three ranks map memory, too.
        CHECK(eventually([&] { return fake::calls(function) >= before + number; }));
        for (int round = 0; round < 3; ++round) check_some(ranks, from, good, random);
    }
    const Registered next(ranks, 1 << 20);
    check_some(ranks, good, next, random);
}

TEST_CASE("windows that cannot lie behind the switch serve collectives all the same", "[.][multicast]") {
    std::mt19937 random(seed());
    const Ranks ranks(spread(3));
    const int created = fake::calls("cuMulticastCreate");
    {
        const Window plain(ranks, 1 << 20, 0, false, DeviceBuffer::Kind::plain), unlike(ranks, 1 << 20, 0, true);
        CHECK(fake::calls("cuMulticastCreate") == created);
        check_some(ranks, plain, unlike, random);
        const Window good(ranks, 1 << 20);
        CHECK(fake::calls("cuMulticastCreate") == created + 1);
        check_some(ranks, good, unlike, random);
        check_some(ranks, plain, good, random);
    }
    // The last calls of a registration look for the pieces to bind.
    const int before_good = fake::calls("cuMemRetainAllocationHandle");
    { const Window good(ranks, 1 << 20); }
    const std::string last_retained =
        "cuMemRetainAllocationHandle " + std::to_string(fake::calls("cuMemRetainAllocationHandle") - before_good);
    for (const std::string& fault : std::vector<std::string>{
             "cuMulticastGetGranularity 1", "cuMulticastCreate 1", "cuMemExportToShareableHandle 1",
             "cuMemImportFromShareableHandle 2", "cuMulticastAddDevice 1", "cuMulticastAddDevice 3", last_retained,
             "cuMulticastBindMem 2", "cuMemAddressReserve 1", "cuMemMap 3", "cuMemSetAccess 2"}) {
        INFO(fault);
        const std::string function = fault.substr(0, fault.find(' '));
        std::vector<std::unique_ptr<DeviceBuffer>> parts;
        for (int rank = 0; rank < 3; ++rank)
            parts.push_back(std::make_unique<DeviceBuffer>(rank, 1 << 20, 0, DeviceBuffer::Kind::weft));
        std::vector<weftWindow_t> windows(3);
        const int before = fake::calls(function);
        fake::add_setting("fault " + fault + " 802");
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftCommWindowRegister(ranks.comms[r], parts[r]->data(), 1 << 20, &windows[r], WEFT_WIN_DEFAULT);
        });
        CHECK(fake::calls(function) > before);
        ranks.group([&](int rank) {
            void* const data = parts[size_t(rank)]->data();
            return weftAllReduce(data, data, 1000, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
        ranks.finish();
        ranks.check_healthy();
        const int unbound = fake::calls("cuMulticastUnbind");
        ranks.group(
            [&](int rank) { return weftCommWindowDeregister(ranks.comms[size_t(rank)], windows[size_t(rank)]); });
        CHECK(fake::calls("cuMulticastUnbind") == unbound);  // it was not behind the switch
    }
}

TEST_CASE("captured calls on windows behind the switch replay with new data", "[.][multicast]") {
    constexpr size_t count = 4096;
    const Ranks ranks(spread(3));
    const Window inputs(ranks, 1 << 20), sums(ranks, 1 << 20);
    const auto enqueue = [&] {
        ranks.group([&](int rank) {
            return weftAllReduce(inputs.at(rank, 0), sums.at(rank, 64), count, weftFloat32, weftSum,
                                 ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
        });
    };
    const Captured captured(ranks, enqueue);
    for (int round = 1; round <= 4; ++round) {
        Bytes right(count * 4);
        for (int rank = 0; rank < 3; ++rank) {
            Bytes input(count * 4);
            for (size_t i = 0; i < count; ++i) {
                const float value = float(round * (rank + 1) + int(i % 97));
                memcpy(&input[4 * i], &value, 4);
                float sum = 0;
                memcpy(&sum, &right[4 * i], 4);
                sum += value;
                memcpy(&right[4 * i], &sum, 4);
            }
            inputs.write(rank, 0, input);
        }
        round % 2 == 0 ? enqueue() : captured.launch();
        ranks.finish();
        ranks.check_healthy();
        for (int rank = 0; rank < 3; ++rank)
            CHECK(memcmp(sums.read(rank).data() + 64, right.data(), right.size()) == 0);
    }
}

TEST_CASE("staging memory behind the switch is freed when its communicator ends, not with the last one",
          "[.][multicast]") {
    const Ranks stays(spread(2));
    const int before = fake::calls("cuMulticastUnbind");
    { const Ranks ends(spread(3)); }
    CHECK(eventually([&] { return fake::calls("cuMulticastUnbind") == before + 3; }));
    // The other communicator still works.
    std::mt19937 random(seed());
    CHECK(compare(stays, {weftFloat32, weftSum, 1000, false, 0}, random) == "");
    CHECK(fake::calls("cuMulticastUnbind") == before + 3);
}

}  // namespace weft::internal::test
