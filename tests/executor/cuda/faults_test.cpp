// faults_test.cpp: kernels whose peers are late, missing, gone or elsewhere: they leave, and the report says why.
#include "tests/executor/cuda/virtual_ranks.hpp"
#include "tests/executor/wild_inputs.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;
using cuda::KernelFailure;
using cuda::KernelWait;

const Launch launches[] = {{Body::packet_one_shot, 2},     {Body::packet_two_shot, 2},         {Body::peer_two_shot, 2},
                           {Body::peer_two_shot, 2, true}, {Body::peer_two_shot, 2, true, 16}, {Body::steps, 0}};

Call call_of(int n, const Launch& launch, size_t count, std::mt19937& random) {
    static const WildInputs inputs(random);
    Call call;
    call.algorithm = registry::find_algorithm(launch.body == Body::steps ? "ring" : "one_shot");
    call.type = weftFloat32;
    call.tile_bytes = 1024;
    inputs.fill(call, n, count, random);
    return call;
}

}  // namespace

TEST_CASE("a kernel after one that failed does nothing, so its data is not taken for the other's", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : launches) {
        INFO(name_of(launch.body));
        VirtualRanks ranks(2);
        const Call call = call_of(2, launch, 500, random), behind = call_of(2, launch, 500, random);
        auto first = ranks.prepare(call, launch), second = ranks.prepare(behind, launch);
        ranks.abort(0);
        for (auto* parts : {&first, &second}) {
            (*parts)[0]->start();
            (*parts)[0]->join();
        }
        CHECK(ranks.report(0).failure == KernelFailure::aborted);
        // The late rank may need only data that the failed rank had sent before.
        ranks.set_timeout_ms(50);
        auto late = ranks.prepare(call, launch);
        late[1]->start();
        late[1]->join();
        const KernelFailure failure = ranks.report(1).failure;
        CHECK((failure == KernelFailure::timeout || failure == KernelFailure::none));
        if (failure == KernelFailure::none) CHECK(late[1]->result() == expected(call)[1]);
        CHECK((failure == KernelFailure::timeout || launch.body == Body::packet_one_shot));
    }
}

TEST_CASE("a replay behind a launch that failed does nothing, though it has the same number", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : launches) {
        INFO(name_of(launch.body));
        VirtualRanks ranks(2);
        ranks.set_timeout_ms(50);
        const Call call = call_of(2, launch, 500, random);
        auto parts = ranks.prepare(call, launch);
        for (int replay = 0; replay < 2; ++replay) {
            parts[0]->start();
            parts[0]->join();
            parts[0]->change_input();
        }
        CHECK(ranks.report(0).failure == KernelFailure::timeout);
        // The late rank's first one must not take what the second sent for the first's.
        parts[1]->start();
        parts[1]->join();
        const KernelFailure failure = ranks.report(1).failure;
        CHECK((failure == KernelFailure::timeout || failure == KernelFailure::none));
        if (failure == KernelFailure::none) CHECK(parts[1]->result() == expected(call)[1]);
    }
}

TEST_CASE("a rank that comes late is waited for", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : launches) {
        VirtualRanks ranks(3);
        const Call call = call_of(3, launch, 500, random);
        auto parts = ranks.prepare(call, launch);
        parts[0]->start();
        parts[2]->start();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        parts[1]->start();
        std::vector<Bytes> got;
        for (auto& part : parts) {
            part->join();
            got.push_back(part->result());
        }
        CHECK(difference(call, got, expected(call)).value_or("no difference") == "no difference");
    }
}

TEST_CASE("at the deadline a kernel leaves and names the rank that is missing", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : launches)
        CHECK(with_growing_limit(50, [&](int64_t timeout_ms) {
                  VirtualRanks ranks(3);
                  ranks.set_timeout_ms(timeout_ms);
                  const Call call = call_of(3, launch, 500, random);
                  auto parts = ranks.prepare(call, launch);
                  parts[0]->start();
                  parts[1]->start();
                  parts[0]->join();
                  parts[1]->join();
                  std::string objection;
                  for (const int rank : {0, 1}) {
                      INFO(name_of(launch.body) << " on rank " << rank);
                      CHECK(ranks.report(rank).failure == KernelFailure::timeout);
                      CHECK(ranks.report(rank).rank == rank);
                      CHECK(ranks.report(rank).waiting != KernelWait::nothing);
                      // A rank that begins after the other gave up misses that rank. On a ring, blocks wait for their
                      // neighbour, and idle blocks wait for all; the first deadline is reported.
                      const int peer = ranks.report(rank).peer;
                      if (peer != 2 && !(launch.body == Body::steps && peer == (rank + 2) % 3))
                          objection += fmt::format("{} on rank {} misses rank {} after {} ms; ", name_of(launch.body),
                                                   rank, peer, timeout_ms);
                  }
                  CHECK(ranks.report(2).failure == KernelFailure::none);
                  return objection;
              }) == "");
}

TEST_CASE("at the deadline threads that wait for a punctual rank's results name the rank that keeps it from them",
          "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : {Launch{Body::packet_two_shot, 1}, Launch{Body::packet_two_shot, 2}})
        for (const size_t count : {4, 40'000}) {  // fewer units than threads; rounds that overlap
            CHECK(with_growing_limit(50, [&](int64_t timeout_ms) {
                      VirtualRanks ranks(3);
                      ranks.set_timeout_ms(timeout_ms);
                      std::string objection;
                      for (int i = 0; i < 3; ++i)
                          ranks.run(call_of(3, launch, 1, random), launch);  // then blocks have 7 threads
                      const Call call = call_of(3, launch, count, random);
                      auto parts = ranks.prepare(call, launch);
                      for (const int rank : {0, 1}) parts[size_t(rank)]->start();
                      for (const int rank : {0, 1}) parts[size_t(rank)]->join();
                      for (const int rank : {0, 1})
                          if (ranks.report(rank).peer != 2)
                              objection += fmt::format("rank {} misses rank {} after {} ms; ", rank,
                                                       ranks.report(rank).peer, timeout_ms);
                      return objection;
                  }) == "");
        }
}

TEST_CASE("without a deadline a kernel waits until it is aborted", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& launch : launches) {
        VirtualRanks ranks(2);
        ranks.set_timeout_ms(0);
        const Call call = call_of(2, launch, 500, random);
        auto parts = ranks.prepare(call, launch);
        parts[0]->start();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        CHECK(uint32_t(cuda::load_acquire(reinterpret_cast<const uint32_t*>(&ranks.report(0).failure))) == 0);
        ranks.abort(0);
        parts[0]->join();
        CHECK(ranks.report(0).failure == KernelFailure::aborted);
        CHECK(ranks.report(0).peer == 1);
    }
}

TEST_CASE("ranks that call different things both report it, with any kernels", "[cuda]") {
    std::mt19937 random(1);
    for (const Launch& first : launches)
        for (const Launch& second : launches) {
            VirtualRanks ranks(2);
            const Call call = call_of(2, first, 500, random), other = call_of(2, second, 400, random);
            auto parts = ranks.prepare(call, first);
            auto others = ranks.prepare(other, second);
            parts[0]->start();
            others[1]->start();
            parts[0]->join();
            others[1]->join();
            INFO(name_of(first.body) << " against " << name_of(second.body));
            for (const int rank : {0, 1}) {
                CHECK(ranks.report(rank).failure == KernelFailure::mismatch);
                CHECK(ranks.report(rank).peer == 1 - rank);
            }
            CHECK(ranks.report(0).fingerprint == parts[0]->arguments.fingerprint);
            CHECK(ranks.report(0).other_fingerprint == others[1]->arguments.fingerprint);
            CHECK(ranks.report(1).other_fingerprint == parts[0]->arguments.fingerprint);
        }
}

TEST_CASE("a different number of elements is noticed though it fills as many packets", "[cuda]") {
    std::mt19937 random(1);
    VirtualRanks ranks(2);
    const Launch launch{Body::packet_one_shot, 1};
    const Call call = call_of(2, launch, 3, random), other = call_of(2, launch, 4, random);
    auto parts = ranks.prepare(call, launch);
    auto others = ranks.prepare(other, launch);
    parts[0]->start();
    others[1]->start();
    parts[0]->join();
    others[1]->join();
    for (const int rank : {0, 1}) CHECK(ranks.report(rank).failure == KernelFailure::mismatch);
}

}  // namespace weft::internal::test
