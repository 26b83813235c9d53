// gpu_memory_test.cpp: slots in the memory of a GPU, which the test plays: a file that the fake libibverbs maps as a
// dma-buf. The fake device holds its writes back until it reads something, as a GPU's path may do.
#include <sys/mman.h>

#include "src/base/fd.hpp"
#include "tests/amount.hpp"
#include "tests/verbs/connections.hpp"

namespace weft::internal::test {
namespace {

struct GpuMemory {
    Fd file;
    std::byte* data = nullptr;
    size_t bytes;
    std::unique_ptr<RegisteredMemory> registered;

    explicit GpuMemory(size_t size, bool by_address = false) : file(Fd::memory("fake_cuda", 0)), bytes(size) {
        REQUIRE(ftruncate(file.number(), off_t(size)) == 0);
        data = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0));
        registered = taken(verbs_transport().register_memory(range(by_address)));
    }
    GpuMemory(const GpuMemory&) = delete;
    GpuMemory& operator=(const GpuMemory&) = delete;
    ~GpuMemory() {
        registered.reset();
        munmap(data, bytes);
    }
    MemoryRange range(bool by_address) const {
        return {.data = data,
                .bytes = bytes,
                .kind = RangeKind::device,
                .device = 0,
                .dma_buf = by_address ? -1 : file.number()};
    }
};

constexpr int depth = 4;
constexpr size_t slot_bytes = 64 << 10;  // whole pages

// A connection whose slots at both ends are a GPU's.
struct GpuLine {
    GpuMemory sent{depth * slot_bytes}, received{depth * slot_bytes};
    Line line{.depth = depth, .slot_bytes = slot_bytes, .receiver = {}, .sender = {}, .failure = {}};
    uint64_t seen = 0;

    GpuLine(const TwoRanks& ranks, int channel) {
        Blob blob;
        const auto options = [&](int self, const GpuMemory& memory) {
            ConnectionOptions made = ranks.options(self, line);
            made.channel = channel;
            made.slots = memory.data;
            made.slot_memory = memory.registered.get();
            made.driver = ConnectionOptions::Driver::proxy;
            return made;
        };
        line.receiver = taken(verbs_transport().listen(options(1, received), blob));
        line.sender = taken(verbs_transport().connect(options(0, sent), blob));
    }
    // One step of both ends. Messages are looked at as far ahead as they are there, and half of them are released then.
    void step(uint64_t count) {
        while (line.sent < count && line.send()) {
        }
        (void)taken(line.sender->progress());
        for (SlotInfo info; seen - line.received < depth; ++seen) {
            const Slot slot = taken(line.receiver->look_ahead(seen - line.received, info));
            if (!slot) break;
            if (info.operation != seen || info.bytes != Line::length_of(seen, slot_bytes))
                throw std::runtime_error(fmt::format("message {} is another", seen));
            for (size_t i = 0; i < info.bytes; ++i)
                if (slot.data[i] != Line::byte_of(seen, i))
                    throw std::runtime_error(fmt::format("byte {} of message {} is not visible", i, seen));
        }
        for (uint64_t left = (seen - line.received + 1) / 2; left > 0; --left, ++line.received)
            done(line.receiver->release());
    }
};

struct HeldWrites {
    HeldWrites() { fake_verbs().run("unflushed 1; reorder 1; hold 50; late 0"); }
    ~HeldWrites() { fake_verbs().run("unflushed 0"); }
};

}  // namespace

TEST_CASE("kernels see every message that a receiver shows, and one flush serves several connections", "[gpu]") {
    const auto [rails, pairs] = GENERATE(table<int, int>({{1, 1}, {1, 2}, {2, 1}}));
    INFO(rails << " rails, " << pairs << " pairs");
    verbs::Settings settings = quick_settings("");
    settings.rails = rails;
    settings.pairs_per_rail = pairs;
    settings.striped_bytes = 16 << 10;
    const WithSettings held(settings);
    const HeldWrites writes;
    const unsigned long before = fake_verbs().count("held");
    const TwoRanks ranks;
    std::vector<std::unique_ptr<GpuLine>> lines;
    for (int channel = 0; channel < 3; ++channel) lines.push_back(std::make_unique<GpuLine>(ranks, channel));
    const uint64_t count = small() ? 40 : 120;
    REQUIRE(eventually([&] {
        bool all = true;
        for (const auto& each : lines) {
            for (int step = 0; step < 20; ++step) each->step(count);
            all = all && each->line.received == count;
        }
        return all;
    }));
    CHECK(fake_verbs().count("held") > before);
}

TEST_CASE("a flush that fails ends the connection with both ends of the path", "[gpu]") {
    const HeldWrites writes;
    const TwoRanks ranks;
    GpuLine line(ranks, 0);
    REQUIRE(eventually([&] { return line.step(1), line.line.received == 1; }));
    const std::string fault = GENERATE("complete", "post");
    // The next requests are the data, the header, and the flush. A post of the list counts each of them.
    fake_verbs().run(fault == "post" ? "fail post_send 3 12" : "complete 5 2");
    Status failure;
    REQUIRE(eventually([&] {
        try {
            line.step(2);
        } catch (const std::exception& error) {
            failure = Status(error::verbs_call, error.what());
        }
        return !failure.ok();
    }));
    INFO(failure.sentence());
    CHECK_THAT(failure.sentence(), Catch::Contains("flush") && Catch::Contains("fake0:1"));
    fake_verbs().run("lose 1 0");
}

TEST_CASE("a lane that fails ends a link to memory that needs flushes", "[gpu]") {
    verbs::Settings settings = quick_settings();
    settings.pairs_per_rail = 2;
    const WithSettings held(settings);
    const HeldWrites writes;
    const TwoRanks ranks;
    GpuLine line(ranks, 0);
    REQUIRE(eventually([&] { return line.step(3), line.line.received == 3; }));
    fake_verbs().run("complete 12 1");
    std::string failure;
    REQUIRE(eventually([&] {
        try {
            line.step(1'000);
        } catch (const std::exception& error) {
            failure = error.what();
        }
        return !failure.empty();
    }));
    CHECK_THAT(failure, Catch::Contains("needs flushes"));
    fake_verbs().run("lose 1 0");
}

TEST_CASE("device memory is registered by its address where the kernel can", "[gpu]") {
    const WithSettings both_devices(quick_settings(""));
    GpuMemory memory(1 << 16);
    CHECK_ERROR(verbs_transport().register_memory(memory.range(true)), "verbs.call");
    fake_verbs().run("peermem 1");
    CHECK(verbs_transport().register_memory(memory.range(true)).ok());
    fake_verbs().run("peermem 0; fail ibv_reg_dmabuf_mr 2 95");
    // The second device fails: none of both keeps the memory.
    const int objects = fake_verbs().objects();
    CHECK_ERROR(verbs_transport().register_memory(memory.range(false)), "verbs.call");
    CHECK(fake_verbs().objects() == objects);
}

}  // namespace weft::internal::test
