// switched_graphs_test.cpp: graphs put the buffers of their calls behind the switch, and take them back when they end. On
// eight GPUs of the fake driver, with WEFT_GPU_MULTICAST=3.
#include <optional>

#include "src/gpu/domain/gpu_row.hpp"
#include "tests/device/calls.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

namespace {

using Kind = DeviceBuffer::Kind;

int bound() { return fake::calls("cuMulticastBindMem"); }
int unbound() { return fake::calls("cuMulticastUnbind"); }

// A buffer of each rank, and sums in place there.
class Sums {
  public:
    explicit Sums(const Ranks& ranks, size_t count = 4096, Kind kind = Kind::weft, std::optional<Kind> of_last = {})
        : ranks_(ranks), count_(count) {
        for (const int device : ranks.placing) {
            const bool last = buffers_.size() + 1 == ranks.placing.size();
            buffers_.push_back(
                std::make_unique<DeviceBuffer>(device, count * 4, 64, last ? of_last.value_or(kind) : kind));
        }
    }
    Sums(const Sums&) = delete;
    weftResult_t enqueue(int rank) const {
        void* const data = at(rank);
        return weftAllReduce(data, data, count_, weftFloat32, weftSum, ranks_.comms[size_t(rank)],
                             ranks_.streams[size_t(rank)]->weft());
    }
    void enqueue() const {
        ranks_.group([&](int rank) { return enqueue(rank); });
    }
    void* at(int rank) const { return buffers_[size_t(rank)]->data(); }
    Bytes read(int rank) const { return buffers_[size_t(rank)]->read(count_ * 4); }
    void write(int rank, int round) const {
        std::vector<float> input(count_);
        for (size_t i = 0; i < count_; ++i) input[i] = value(rank, round, i);
        buffers_[size_t(rank)]->write(input.data(), count_ * 4);
    }
    void write(int round) const {
        for (int rank = 0; rank < ranks_.count(); ++rank) write(rank, round);
    }
    // After the call in round `round`.
    void check(int round) const {
        ranks_.finish();
        ranks_.check_healthy();
        std::vector<float> right(count_);
        for (int rank = 0; rank < ranks_.count(); ++rank)
            for (size_t i = 0; i < count_; ++i) right[i] += value(rank, round, i);
        for (int rank = 0; rank < ranks_.count(); ++rank)
            CHECK(memcmp(read(rank).data(), right.data(), count_ * 4) == 0);
    }
    void check(const Captured& captured) const {
        for (int round = 1; round <= 3; ++round) {
            write(round);
            captured.launch();
            check(round);
        }
    }

  private:
    static float value(int rank, int round, size_t i) { return float(round * (rank + 1) + int(i % 97)); }

    const Ranks& ranks_;
    size_t count_;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

// A device call, at which ranks find out that graphs have ended.
void call_something(const Ranks& ranks) {
    const Sums other(ranks, 4, Kind::plain);
    other.write(1);
    other.enqueue();
    other.check(1);
}

}  // namespace

TEST_CASE("a graph's buffers lie behind the switch until it ends, and their places serve others", "[.][multicast]") {
    for (const int n : {2, 3}) {
        const Ranks ranks(spread(n));
        for (int round = 0; round <= switch_slots; ++round) {
            const Sums sums(ranks);
            const int bound_before = bound(), unbound_before = unbound();
            {
                const Captured captured(ranks, [&] { sums.enqueue(); });
                CHECK(eventually([&] { return bound() == bound_before + n; }));
                sums.check(captured);
                // The same memory again.
                const Captured again(ranks, [&] { sums.enqueue(); });
                CHECK(eventually([&] { return bound() == bound_before + n; }));
                sums.check(again);
            }
            call_something(ranks);
            CHECK(eventually([&] { return unbound() == unbound_before + n; }));
            // Without a graph they are not registered.
            sums.write(1);
            sums.enqueue();
            sums.check(1);
            CHECK(eventually([&] { return bound() == bound_before + n; }));
        }
    }
}

TEST_CASE("graphs stage the buffers for which the switch has no place, until others end", "[.][multicast]") {
    const Ranks ranks(spread(2));
    std::vector<std::unique_ptr<Sums>> all;
    std::vector<std::unique_ptr<Captured>> graphs;
    const int before = bound();
    const auto capture = [&](size_t number) {
        graphs.push_back(std::make_unique<Captured>(ranks, [&] { all[number]->enqueue(); }));
    };
    for (size_t number = 0; number < size_t(switch_slots) + 2; ++number) {
        all.push_back(std::make_unique<Sums>(ranks));
        capture(number);
    }
    CHECK(eventually([&] { return bound() == before + 2 * switch_slots; }));
    for (size_t number = 0; number < all.size(); ++number) all[number]->check(*graphs[number]);
    graphs.erase(graphs.begin());
    const int unbound_before = unbound();
    call_something(ranks);
    CHECK(eventually([&] { return unbound() == unbound_before + 2; }));
    // A place is free a moment after the memory has left it.
    CHECK(eventually([&] {
        capture(all.size() - 1);
        return bound() == before + 2 * switch_slots + 2;
    }));
    all.back()->check(*graphs.back());
}

TEST_CASE("if a rank's memory is not suitable, a graph's calls are staged, and later ones are not", "[.][multicast]") {
    const Ranks ranks(spread(3));
    const int before = bound();
    const Sums good(ranks), plain(ranks, 4096, Kind::weft, Kind::plain), other(ranks, 4096, Kind::plain, Kind::weft),
        closed(ranks, 4096, Kind::weft, Kind::managed), next(ranks);
    // Of another size on one rank.
    const Sums longer(ranks, size_t(3) << 18, Kind::weft);
    const DeviceBuffer shorter(2, 4096 * 4, 0, Kind::weft);
    const Captured captured(ranks, [&] {
        for (const Sums* each : {&plain, &good, &other, &closed}) each->enqueue();
        ranks.group([&](int rank) {
            void* const data = rank == 2 ? shorter.data() : longer.at(rank);
            return weftAllReduce(data, data, 4096, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
        next.enqueue();
    });
    CHECK(eventually([&] { return bound() == before + 2 * 3; }));  // `good` and `next`
    for (int round = 1; round <= 3; ++round) {
        for (const Sums* each : {&plain, &good, &other, &closed, &next}) each->write(round);
        captured.launch();
        for (const Sums* each : {&plain, &good, &other, &closed, &next}) each->check(round);
    }
}

TEST_CASE("captured calls of each collective whose ranks differ in what is registered are right", "[.][multicast]") {
    std::mt19937 random(seed());
    const Ranks ranks(spread(3));
    constexpr size_t part = 2048;
    const Sums from(ranks, 3 * part), to(ranks, 3 * part), known(ranks, 3 * part), own(ranks, part);
    void* handle = nullptr;
    demand(weftCommRegister(ranks.comms[0], known.at(0), 3 * part * 4, &handle));
    for (int round = 0; round < 6; ++round) {
        // Some ranks send from the buffer that they receive in.
        const unsigned in_place = random() % 8, of_known = random() % 8;
        const auto send = [&](int rank) { return (of_known >> rank & 1) != 0 ? known.at(rank) : from.at(rank); };
        const auto receive = [&](int rank) { return (in_place >> rank & 1) != 0 ? send(rank) : to.at(rank); };
        const Captured captured(ranks, [&] {
            ranks.group([&](int rank) {
                return weftAllReduce(send(rank), receive(rank), 3 * part, weftFloat32, weftSum,
                                     ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
            });
            ranks.group([&](int rank) {
                return weftReduceScatter(receive(rank), own.at(rank), part, weftFloat32, weftSum,
                                         ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
            });
            ranks.group([&](int rank) {
                return weftAllGather(own.at(rank), to.at(rank), part, weftFloat32, ranks.comms[size_t(rank)],
                                     ranks.streams[size_t(rank)]->weft());
            });
        });
        for (int launch = 1; launch <= 2; ++launch) {
            for (const Sums* each : {&from, &to, &known}) each->write(launch);
            captured.launch();
            ranks.finish();
            ranks.check_healthy();
            // Three times the sum of all: equal on all ranks, and all parts are there.
            for (int rank = 0; rank < 3; ++rank) {
                std::vector<float> right(3 * part);
                for (size_t i = 0; i < right.size(); ++i) right[i] = 3 * float(6 * launch + 3 * int(i % 97));
                CHECK(memcmp(to.read(rank).data(), right.data(), right.size() * 4) == 0);
            }
        }
    }
    demand(weftCommDeregister(ranks.comms[0], handle));
}

TEST_CASE("ranks that capture in threads of their own share the switch, and a late one costs staging",
          "[.][multicast]") {
    const Ranks ranks(spread(3));
    const Sums sums(ranks);
    const int before = bound();
    for (const bool late : {false, true}) {
        const Sums fresh(ranks);
        std::vector<CUgraphExec> graphs(3);
        check_on_threads(3, [&](int rank) {
            const Stream& stream = *ranks.streams[size_t(rank)];
            const Current current(stream.device);
            CUgraph graph = nullptr;
            demand(cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            if (late && rank == 1) usleep(1'300'000);
            for (const Sums* each : {&sums, &fresh}) demand(each->enqueue(rank), ranks.comms[size_t(rank)]);
            demand(cuStreamEndCapture(stream.handle, &graph));
            demand(cuGraphInstantiateWithFlags(&graphs[size_t(rank)], graph, 0));
            demand(cuGraphDestroy(graph));
        });
        CHECK(eventually([&] { return bound() >= before + (late ? 9 : 6); }));
        for (int round = 1; round <= 3; ++round) {
            for (const Sums* each : {&sums, &fresh}) each->write(round);
            for (int rank = 0; rank < 3; ++rank) {
                const Current current(rank);
                demand(cuGraphLaunch(graphs[size_t(rank)], ranks.streams[size_t(rank)]->handle));
            }
            for (const Sums* each : {&sums, &fresh}) each->check(round);
        }
        for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
    }
}

TEST_CASE("ranks that gave up a capture at different calls agree about the next graph", "[.][multicast]") {
    const Ranks ranks(spread(3));
    const Sums first(ranks), second(ranks);
    for (const auto& stream : ranks.streams) {
        const Current current(stream->device);
        demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    }
    first.enqueue();
    demand(second.enqueue(0));
    for (const auto& stream : ranks.streams) {
        const Current current(stream->device);
        CUgraph graph = nullptr;
        demand(cuStreamEndCapture(stream->handle, &graph));
        demand(cuGraphDestroy(graph));
    }
    const int before = bound();
    const Captured captured(ranks, [&] {
        first.enqueue();
        second.enqueue();
    });
    CHECK(eventually([&] { return bound() == before + 6; }));
    for (const Sums* each : {&first, &second}) each->write(1);
    captured.launch();
    for (const Sums* each : {&first, &second}) each->check(1);
}

TEST_CASE("captured gathers of which copy engines were asked for use the switch if kernels serve them",
          "[.][multicast]") {
    const Ranks ranks(spread(3));
    weftCallConfig_t without_kernels = WEFT_CALL_CONFIG_INITIALIZER;
    without_kernels.blockPolicy = WEFT_BLOCK_POLICY_ZERO;
    for (weftComm_t comm : ranks.comms) demand(weftCommSetCallConfig(comm, &without_kernels));
    // Memory that the copy engines of the others cannot reach.
    const Sums from(ranks, 1024, Kind::pieces), to(ranks, 3 * 1024);
    const int before = bound();
    const Captured captured(ranks, [&] {
        ranks.group([&](int rank) {
            return weftAllGather(from.at(rank), to.at(rank), 1024, weftFloat32, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
    });
    CHECK(eventually([&] { return bound() == before + 3; }));
    from.write(1);
    captured.launch();
    ranks.finish();
    ranks.check_healthy();
    for (int reader = 0; reader < 3; ++reader)
        for (int rank = 0; rank < 3; ++rank)
            CHECK(memcmp(to.read(reader).data() + rank * 4096, from.read(rank).data(), 4096) == 0);
}

TEST_CASE("if a driver's call for the switch fails while ranks capture, the call is staged", "[.][multicast]") {
    const Ranks ranks(spread(3));
    for (const std::string fault : {"cuMulticastCreate 1", "cuMemImportFromShareableHandle 1", "cuMulticastAddDevice 2",
                                    "cuMulticastBindMem 3", "cuUserObjectCreate 2"}) {
        INFO(fault);
        const Sums sums(ranks);
        const size_t space = fault.find(' ');
        const int before = fake::calls(fault.substr(0, space));
        fake::add_setting("fault " + fault + " 802");
        const Captured captured(ranks, [&] { sums.enqueue(); });
        // The fault must not be left for the next ones.
        CHECK(
            eventually([&] { return fake::calls(fault.substr(0, space)) >= before + std::stoi(fault.substr(space)); }));
        sums.check(captured);
    }
    const int before = bound();
    const Sums next(ranks);
    const Captured captured(ranks, [&] { next.enqueue(); });
    CHECK(eventually([&] { return bound() == before + 3; }));
    next.check(captured);
}

TEST_CASE("a graph does not find other memory at the address of a buffer that an older graph has used",
          "[.][multicast]") {
    constexpr size_t bytes = size_t(2) << 20, count = 1024;
    const Ranks ranks(spread(2));
    struct Place {
        CUdeviceptr address = 0;
        int device;
        void map() const {
            const Current current(device);
            CUmemAllocationProp properties{};
            properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
            properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            CUmemGenericAllocationHandle handle;
            demand(cuMemCreate(&handle, bytes, &properties, 0));
            demand(cuMemMap(address, bytes, 0, handle, 0));
            demand(cuMemRelease(handle));
            const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            demand(cuMemSetAccess(address, bytes, &access, 1));
        }
        void unmap() const {
            const Current current(device);
            demand(cuMemUnmap(address, bytes));
        }
    };
    Place places[2] = {{0, 0}, {0, 1}};
    const auto enqueue = [&] {
        ranks.group([&](int rank) {
            void* const data = reinterpret_cast<void*>(places[rank].address);
            return weftAllReduce(data, data, count, weftUint32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
    };
    for (Place& place : places) {
        demand(cuMemAddressReserve(&place.address, bytes, 0, 0, 0));
        place.map();
    }
    std::vector<std::unique_ptr<Captured>> graphs;
    const int before = bound();
    for (int memory = 0; memory < 2; ++memory) {
        graphs.push_back(std::make_unique<Captured>(ranks, enqueue));
        CHECK(eventually([&] { return bound() == before + 2 * (memory + 1); }));
        for (uint32_t round = 1; round <= 2; ++round) {
            for (const Place& place : places) {
                const std::vector<uint32_t> input(count, round + uint32_t(place.device));
                const Current current(place.device);
                demand(cuMemcpy(place.address, reinterpret_cast<CUdeviceptr>(input.data()), count * 4));
            }
            graphs.back()->launch();
            ranks.finish();
            ranks.check_healthy();
            for (const Place& place : places) {
                std::vector<uint32_t> got(count);
                const Current current(place.device);
                demand(cuMemcpy(reinterpret_cast<CUdeviceptr>(got.data()), place.address, count * 4));
                CHECK(got == std::vector<uint32_t>(count, 2 * round + 1));
            }
        }
        // Only the last graph is launched from now on.
        for (const Place& place : places) place.unmap();
        if (memory == 0)
            for (const Place& place : places) place.map();
    }
    graphs.clear();
    for (const Place& place : places) demand(cuMemAddressFree(place.address, bytes));
}

}  // namespace weft::internal::test
