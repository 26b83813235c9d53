// streams_test.cpp: streams that are made after others were destroyed, and have their handles.
#include <cstring>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

TEST_CASE("a stream with the handle of one that was destroyed still follows the call before", "[streams][fake]") {
    const Ranks ranks(spread(2));
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const std::vector<uint32_t> ones(1000, 1);
    for (const int device : ranks.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, 4000));
        buffers.back()->write(ones.data(), 4000);
    }
    const auto call = [&](size_t rank, const Stream& stream) {
        demand(weftAllReduce(buffers[rank]->data(), buffers[rank]->data(), 1000, weftUint32, weftSum, ranks.comms[rank],
                             stream.weft()));
    };
    auto first = std::make_unique<Stream>(ranks.placing[0]);
    const CUstream handle = first->handle;
    call(0, *first);
    first.reset();  // its kernel waits for rank 1's
    const Stream second(ranks.placing[0]);
    REQUIRE(second.handle == handle);
    const int waits = fake::calls("cuStreamWaitEvent");
    call(0, second);
    CHECK(fake::calls("cuStreamWaitEvent") == waits + 1);
    for (int each = 0; each < 2; ++each) call(1, *ranks.streams[1]);
    second.finish();
    ranks.finish();
    ranks.check_healthy();
    const std::vector<uint32_t> expected(1000, 4);
    for (const auto& buffer : buffers) CHECK(memcmp(buffer->read(4000).data(), expected.data(), 4000) == 0);
}

TEST_CASE("ranks that share a device may call on a stream with the handle of another rank's that is gone",
          "[streams][fake]") {
    const Ranks ranks({0, 0});
    const DeviceBuffer zero(0, 400), one(0, 400);
    const auto call = [&](size_t rank, const Stream& stream) {
        void* const data = (rank == 0 ? zero : one).data();
        return weftAllReduce(data, data, 100, weftUint32, weftSum, ranks.comms[rank], stream.weft());
    };
    auto first = std::make_unique<Stream>(0);
    const CUstream handle = first->handle;
    REQUIRE(call(0, *first) == weftSuccess);
    first.reset();
    const Stream second(0);
    REQUIRE(second.handle == handle);
    const weftResult_t called = call(1, second);
    CHECK(called == weftSuccess);
    if (called != weftSuccess) demand(call(1, *ranks.streams[1]));  // rank 0's kernel waits
    second.finish();
    ranks.finish();
    ranks.check_healthy();
}

}  // namespace weft::internal::test
