// cpu_kernels_copy_test.cpp: copies, scalings and the fused loop of every set of CPU kernels that this machine can run.
#include <algorithm>

#include "src/base/small_copy.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/slot_stores.hpp"
#include "tests/executor/cpu_kernel_data.hpp"

namespace weft::internal {
namespace {

using test::Element;

std::vector<char> random_bytes(std::mt19937& random, size_t count) {
    std::vector<char> bytes(count);
    for (char& byte : bytes) byte = char(random());
    return bytes;
}

}  // namespace

TEST_CASE("a copy is exact for every size and alignment and writes nothing else", "[cpu_kernels]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    const std::vector<char> source = random_bytes(random, 70000);
    test::Fenced target(70000);
    for (const CpuKernels* set : all_cpu_kernels()) {
        std::vector<size_t> sizes(400);
        for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
        sizes.insert(sizes.end(), {4095, 4096, 4097, 65536, 65601});
        for (const size_t bytes : sizes) {
            for (const size_t from : {0, 1, 17, 63}) {
                for (const size_t to : {0, 1, 4, 32, 63}) {
                    for (const Stores stores : {Stores::ordinary, Stores::streaming}) {
                        char* destination = target.prepare(to, bytes);
                        set->copy({destination, source.data() + from, bytes, stores});
                        if (!std::equal(destination, destination + bytes, source.data() + from) || !target.intact()) {
                            CAPTURE(set->isa, bytes, from, to, stores == Stores::streaming);
                            FAIL("differs, or wrote elsewhere");
                        }
                    }
                }
            }
        }
    }
    SUCCEED();
}

TEST_CASE("a copy onto itself changes nothing", "[cpu_kernels]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    const std::vector<char> before = random_bytes(random, 1000);
    for (const CpuKernels* set : all_cpu_kernels()) {
        for (const size_t bytes : {0, 1, 7, 31, 64, 65, 999}) {
            for (const Stores stores : {Stores::ordinary, Stores::streaming}) {
                std::vector<char> bytes_now = before;
                set->copy({bytes_now.data(), bytes_now.data(), bytes, stores});
                CHECK(bytes_now == before);
            }
        }
    }
}

TEST_CASE("a small copy reads and writes exactly its bytes", "[cpu_kernels]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    const std::vector<char> data = random_bytes(random, 64);
    const test::Brink source(64), target(64);
    test::Fenced fenced(64);
    for (size_t bytes = 0; bytes <= 64; ++bytes) {
        std::copy(data.begin(), data.begin() + ptrdiff_t(bytes), source.last(bytes));
        copy_small(target.last(bytes), source.last(bytes), bytes);
        CHECK(std::equal(data.begin(), data.begin() + ptrdiff_t(bytes), target.last(bytes)));
        copy_small(fenced.prepare(1, bytes), source.last(bytes), bytes);
        CHECK(fenced.intact());
    }
}

TEMPLATE_TEST_CASE("scaling multiplies and rounds as the scalar truth does, in place too", "[cpu_kernels]",
                   WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    using T = Element<type>;
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    test::Fenced target(2000 * sizeof(T));
    for (int round = 0; round < 50; ++round) {
        std::vector<T> source(1001), expected(1001);
        const T scalar = test::random_element<type>(random);
        for (size_t i = 0; i < source.size(); ++i) {
            source[i] = test::random_element<type>(random);
            expected[i] = Arithmetic<type>::round(
                combine<weftProd>(Arithmetic<type>::widen(scalar), Arithmetic<type>::widen(source[i])));
        }
        for (const CpuKernels* set : all_cpu_kernels()) {
            for (const size_t count : {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 1001}) {
                CAPTURE(set->isa, count);
                char* destination = target.prepare(size_t(round) % 3, count * sizeof(T));
                set->scale[type](destination, source.data(), count, &scalar);
                REQUIRE(test::first_difference<type>(destination, expected.data(), count) == count);
                REQUIRE(target.intact());
                std::memcpy(destination, source.data(), count * sizeof(T));
                set->scale[type](destination, destination, count, &scalar);
                REQUIRE(test::first_difference<type>(destination, expected.data(), count) == count);
            }
        }
    }
}

namespace {

// Some copies of random sizes, their sources and guarded targets.
class Copies {
  public:
    Copies(std::mt19937& random, size_t most_bytes) {
        const size_t count = random() % 4;
        for (size_t i = 0; i < count; ++i) {
            sources_.push_back(random_bytes(random, random() % (most_bytes + 1)));
            targets_.emplace_back(most_bytes);
            offsets_.push_back(random() % 2 ? 0 : random() % 64);
            stores_.push_back(random() % 2 ? Stores::streaming : Stores::ordinary);
        }
    }
    std::vector<CopyJob> jobs() {
        std::vector<CopyJob> list;
        for (size_t i = 0; i < sources_.size(); ++i) {
            const size_t bytes = sources_[i].size();
            list.push_back({targets_[i].prepare(offsets_[i], bytes), sources_[i].data(), bytes, stores_[i]});
        }
        return list;
    }
    bool done(const std::vector<CopyJob>& list) const {
        for (size_t i = 0; i < sources_.size(); ++i) {
            const auto* copied = static_cast<const char*>(list[i].destination);
            if (!std::equal(sources_[i].begin(), sources_[i].end(), copied) || !targets_[i].intact()) return false;
        }
        return true;
    }

  private:
    std::vector<std::vector<char>> sources_;
    std::vector<test::Fenced> targets_;
    std::vector<size_t> offsets_;
    std::vector<Stores> stores_;
};

}  // namespace

TEMPLATE_TEST_CASE("the fused loop does what its parts do one after the other", "[cpu_kernels]", WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    using T = Element<type>;
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    for (int round = 0; round < 150; ++round) {
        // Lengths of very different and of like size; nothing at all in some of the streams.
        const auto length = [&] { return random() % 5 ? random() % (size_t(1) << random() % 16) : 0; };
        Copies staging(random, length()), results(random, length());
        const size_t count = length() / sizeof(T);
        const int source_count = 1 + int(random() % 9);
        std::vector<std::vector<T>> data(static_cast<size_t>(source_count), std::vector<T>(count));
        std::vector<const void*> sources;
        for (auto& source : data) {
            for (T& element : source) element = test::random_element<type>(random);
            sources.push_back(source.data());
        }
        const int op = test::random_reduction(type, random);
        const uint32_t average_of = op == weftAvg ? uint32_t(source_count) : 0;
        const Stores stores = random() % 2 ? Stores::streaming : Stores::ordinary;
        const size_t offsets[] = {random() % 2 ? 0 : random() % 64, random() % 64};
        for (const CpuKernels* set : all_cpu_kernels()) {
            std::vector<T> expected(count);
            void* const expected_at[] = {expected.data()};
            set->reduce[type][op]({expected_at, 1, sources.data(), source_count, count, average_of, Stores::ordinary});

            test::Fenced targets[] = {test::Fenced(count * sizeof(T)), test::Fenced(count * sizeof(T))};
            void* const to[] = {targets[0].prepare(offsets[0], count * sizeof(T)),
                                targets[1].prepare(offsets[1], count * sizeof(T))};
            const std::vector<CopyJob> in = staging.jobs(), out = results.jobs();
            set->fused[type][op](in.data(), int(in.size()),
                                 {to, 2, sources.data(), source_count, count, average_of, stores, 1}, out.data(),
                                 int(out.size()));
            CAPTURE(set->isa, round, op, count, in.size(), out.size());
            for (int j = 0; j < 2; ++j) {
                REQUIRE(test::first_difference<type>(to[j], expected.data(), count) == count);
                REQUIRE(targets[j].intact());
            }
            REQUIRE(staging.done(in));
            REQUIRE(results.done(out));
        }
    }
}

TEST_CASE("the fused loop does without a reduction, or with nothing else", "[cpu_kernels]") {
    for (const CpuKernels* set : all_cpu_kernels()) {
        std::vector<float> source(5000, 3), target(5000, 0);
        const CopyJob job = {target.data(), source.data(), 20000, Stores::streaming};
        set->fused[weftFloat32][weftSum](&job, 1, {nullptr, 0, nullptr, 0, 0, 0, Stores::ordinary}, nullptr, 0);
        CHECK(target == source);
        const void* const sources[] = {source.data(), source.data()};
        void* const to[] = {target.data()};
        set->fused[weftFloat32][weftSum](nullptr, 0, {to, 1, sources, 2, 5000, 0, Stores::streaming}, nullptr, 0);
        CHECK(target == std::vector<float>(5000, 6));
        set->fused[weftFloat32][weftSum](nullptr, 0, {to, 1, sources, 2, 0, 0, Stores::ordinary}, nullptr, 0);
        CHECK(target == std::vector<float>(5000, 6));
    }
}

}  // namespace weft::internal

namespace weft::internal::test {

// A CpuKernels whose copies say which stores they were asked for.
static std::vector<Stores> asked;
static CpuKernels recording() {
    CpuKernels cpu_kernels = weft::internal::cpu_kernels();
    cpu_kernels.copy = [](const CopyJob& job) {
        asked.push_back(job.stores);
        weft::internal::cpu_kernels().copy(job);
    };
    return cpu_kernels;
}

TEST_CASE("slots are written past the caches only where readers are far and that takes less, and not for ever",
          "[cpu_kernels]") {
    using Work = SlotStores::Work;
    const CpuKernels cpu_kernels = recording();
    std::vector<std::byte> from(4096, std::byte(7)), to(4096);
    // How many of so many copies go past the caches.
    const auto copies = [&](SlotStores& stores, size_t count, size_t bytes = 4096) {
        asked.clear();
        for (size_t i = 0; i < count; ++i) stores.copy(cpu_kernels, to.data(), from.data(), bytes);
        return std::count(asked.begin(), asked.end(), Stores::streaming);
    };
    const auto tried = [](SlotStores& stores, std::initializer_list<double> lines_ns) {
        for (const double line_ns : lines_ns) stores.judge(line_ns);
    };
    const std::initializer_list<double> distant{24, 3, 3, 24};
    SlotStores near;
    near.look(60);
    CHECK(near.beside_reads(4096) == Stores::ordinary);
    CHECK(copies(near, 30) == 0);  // until the next look, whatever it sees
    SlotStores quick;
    quick.look(150);
    tried(quick, {2});
    CHECK(quick.tried() == Stores::ordinary);              // of another trial
    CHECK(quick.beside_reads(4096) == Stores::streaming);  // what the writer does not see readers may
    CHECK(copies(quick, 30) == 0);

    SlotStores far;
    far.look(150);
    for (const Stores next : {Stores::ordinary, Stores::streaming, Stores::streaming, Stores::ordinary}) {
        CHECK(far.tried() == next);
        CHECK(far.beside_reads(4096) == Stores::streaming);  // whatever is found
        CHECK(far.beside_reads(2048) == Stores::ordinary);
        tried(far, {next == Stores::ordinary ? 24. : 3.});
    }
    CHECK(copies(far, 200, 2047) == 0);  // of a few lines
    CHECK(copies(far, 15) == 15);
    // Found far again and again: ever more writes to the next look.
    SlotStores still_far;
    for (int times = 0; times < 3; ++times) tried(still_far, distant);
    CHECK(copies(still_far, 63) == 63);
    // Writes that cannot be timed bring the next trial nearer, but are none.
    SlotStores beside;
    tried(beside, distant);
    for (int i = 0; i < 1000; ++i) CHECK(beside.beside_reads(4096) == Stores::streaming);

    for (const auto& lines_ns : {std::initializer_list<double>{24, 20, 26, 24},  // a source in memory
                                 std::initializer_list<double>{24, 3, 3, 2},     // the first was disturbed
                                 std::initializer_list<double>{2}}) {            // the last would be
        SlotStores burdened;
        tried(burdened, lines_ns);
        CHECK(burdened.beside_reads(4096) == Stores::ordinary);
    }
    SlotStores moved;  // a far one that has come near
    tried(moved, distant);
    moved.look(150);
    moved.look(60);
    CHECK(moved.beside_reads(4096) == Stores::ordinary);
    CHECK(to == from);

    // A trial times writes of one kind; writes of another kind follow the last result.
    SlotStores mixed;
    tried(mixed, distant);
    tried(mixed, {24});  // the first of a trial of copies
    Stores stores = Stores::ordinary;
    const auto keep = [&](Stores of_slot) { stores = of_slot; };
    for (int i = 0; i < 100; ++i) {
        mixed.write(to.data(), to.size(), Work::reduction, keep);
        CHECK(stores == Stores::streaming);
        CHECK(mixed.tried() == Stores::streaming);
    }
    CHECK(to == from);
}

}  // namespace weft::internal::test
