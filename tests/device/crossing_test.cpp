// crossing_test.cpp: two communicators on the same devices, whose calls the ranks launch in different order, on streams
// of their own: right where both kernels find room, and an error at the deadline where they do not. On devices whose
// room a kernel takes up unless WEFT_GPU_BLOCKS says less (meson.build).
#include <cstdlib>
#include <cstring>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::test {

namespace {

constexpr size_t count = 200'000;  // of a kernel that takes all blocks that it may

struct Both {
    explicit Both(const weftConfig_t* config = nullptr) : first(spread(2), config), second(spread(2), config) {
        const std::vector<uint32_t> ones(count, 1);
        for (const int device : first.placing)
            for (auto* list : {&firsts, &seconds}) {
                list->push_back(std::make_unique<DeviceBuffer>(device, count * 4));
                list->back()->write(ones.data(), count * 4);
            }
    }
    weftResult_t call(bool of_first, size_t rank) const {
        const Ranks& ranks = of_first ? first : second;
        void* const buffer = (of_first ? firsts : seconds)[rank]->data();
        return weftAllReduce(buffer, buffer, count, weftUint32, weftSum, ranks.comms[rank],
                             ranks.streams[rank]->weft());
    }
    // Rank 0's of the one, rank 1's of the other, and when both run their second calls.
    void cross() const {
        CHECK(call(true, 0) == weftSuccess);
        CHECK(call(false, 1) == weftSuccess);
        CHECK(eventually([] { return fake::running_blocks(0) > 0 && fake::running_blocks(1) > 0; }));
        CHECK(call(false, 0) == weftSuccess);
        CHECK(call(true, 1) == weftSuccess);
        first.finish();
        second.finish();
    }
    Ranks first, second;
    std::vector<std::unique_ptr<DeviceBuffer>> firsts, seconds;
};

}  // namespace

TEST_CASE("kernels of two communicators that find room together may be launched in any order", "[room]") {
    const Both both;
    both.cross();
    both.first.check_healthy();
    both.second.check_healthy();
    const std::vector<uint32_t> twos(count, 2);
    for (const auto* list : {&both.firsts, &both.seconds})
        for (const auto& buffer : *list) CHECK(memcmp(buffer->read(count * 4).data(), twos.data(), count * 4) == 0);
}

TEST_CASE("kernels that wait for room which others hold that wait for them end at the deadline", "[no_room]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = 200;
    {
        const Both both(&config);
        both.cross();
        CHECK(both.first.await_failure(0) == weftTimeout);
        CHECK(both.second.await_failure(1) == weftTimeout);
    }
    // The devices are free again.
    const Both both;
    for (const bool of_first : {true, false})
        for (const size_t rank : {size_t(0), size_t(1)}) CHECK(both.call(of_first, rank) == weftSuccess);
    both.first.finish();
    both.second.finish();
    both.first.check_healthy();
    both.second.check_healthy();
}

}  // namespace weft::test
