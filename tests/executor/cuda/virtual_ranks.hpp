// virtual_ranks.hpp: ranks whose kernels' bodies run on the host, one to three threads for each block, in turn, over
// memory laid out as on devices that reach each other.
#pragma once
#include <map>
#include <memory>
#include <thread>

#include "src/gpu/domain/program.hpp"
#include "src/gpu/kernels/host_kernels.hpp"
#include "tests/executor/local_ranks.hpp"

namespace weft::internal::test {

struct Launch {
    cuda::Body body = cuda::Body::packet_one_shot;
    int blocks = 1;
    bool staged = false;  // peer bodies: through staging memory, tiles of the call's size
    int exporting = 0;    // staged: so many ranks, the first, offer their buffers; 0: it is not asked; -1: nobody does
};

inline std::string text(const Call& call, const Launch& launch) {
    return fmt::format("{}, {} blocks, {}staged, {} ranks offer: {}", name_of(launch.body), launch.blocks,
                       launch.staged ? "" : "not ", launch.exporting, call.text());
}

class VirtualRanks {
  public:
    explicit VirtualRanks(int ranks);

    int ranks() const { return ranks_; }
    // As after so many rounds.
    void go_to(uint32_t epoch);
    uint32_t epoch(int block) const { return words_[0]->epoch[block]; }
    void set_timeout_ms(int64_t timeout_ms) { timeout_ns_ = uint64_t(timeout_ms) * 1'000'000; }
    void abort(int rank) { cuda::store_release(&abort_[size_t(rank)], 1u); }
    std::string failures() const;  // empty if no rank has failed
    const cuda::FailureReport& report(int rank) const { return reports_[size_t(rank)]; }

    // A rank's part of one call, with buffers of its own.
    class Part {
      public:
        Part(VirtualRanks& ranks, const Call& call, const Launch& launch, int rank);
        void start();  // threads for each block
        // Another input, as where a graph is launched again.
        void change_input() { std::fill_n(send_begin_, in_bytes(), char(0x3f)); }
        void join() { threads_.clear(); }
        Bytes result() const;
        // Nothing beside the result was written, and of the input only what is in place.
        bool intact() const;

        cuda::KernelArguments arguments{};

      private:
        friend class VirtualRanks;
        size_t in_bytes() const;
        size_t out_bytes() const;
        const Call& call_;
        const Launch launch_;
        int rank_;
        Fenced send_, receive_;
        char *send_begin_ = nullptr, *receive_begin_ = nullptr;
        bool in_place_ = false;
        cuda::Program program_;
        std::vector<cuda::Pack<16>> scratch_;
        int blocks_;    // the same on all ranks, as are
        int team_ = 1;  // a block's threads
        std::vector<std::jthread> threads_;
    };
    std::vector<std::unique_ptr<Part>> prepare(const Call& call, const Launch& launch);
    // All ranks at once; throws if one fails or writes where it must not.
    std::vector<Bytes> run(const Call& call, const Launch& launch);

  private:
    void connect(const Schedule& schedule, int rank, cuda::Program& program);

    struct Connection {
        static constexpr size_t slot_bytes = 4 << 10;
        std::vector<cuda::Pack<16>> slots;
        std::vector<uint64_t> filled;
        uint32_t consumed = 0, sent = 0, received = 0;
    };
    int ranks_;
    uint64_t timeout_ns_ = 120'000'000'000;  // only a hang meets it
    uint32_t launches_ = 0;
    std::vector<std::unique_ptr<cuda::RankFlags>> words_;
    struct Free {
        void operator()(cuda::PacketLine* lines) const { free(lines); }
    };
    std::vector<std::unique_ptr<cuda::PacketLine, Free>> packets_;  // pages that no kernel uses cost nothing
    std::vector<std::vector<cuda::Pack<16>>> staging_;
    std::vector<cuda::FailureReport> reports_;
    std::vector<uint32_t> abort_;
    std::map<std::tuple<int, int, int, uint32_t>, Connection> connections_;  // by channel, sender, receiver, slots
};

}  // namespace weft::internal::test
