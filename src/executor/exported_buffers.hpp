// exported_buffers.hpp: buffers that the ranks of a host access in place during one operation. Their addresses are in the
// payloads of the first tile, so all ranks decide alike (docs/design/shared-memory-protocol.md, rules 7 and 9).
#pragma once
#include "src/executor/call_buffers.hpp"
#include "src/executor/flag_sync.hpp"

namespace weft::internal {

// Owned by a TwoShot. Thread-bound to the rank.
class ExportedBuffers {
  public:
    enum class Use : uint8_t { none, inputs, direct, cma, aborted };

    ExportedBuffers(const Plan& plan, const FlagSync& flags);
    void begin() { shared_ = false; }
    // This rank's addresses for its payload. Peers may access the buffers once its arrival flag is posted.
    BufferAddresses export_own(const CallBuffers& buffers);
    // Peers read our input in place, so it is not staged.
    bool exports_input() const { return exports_input_; }

    // After the arrivals of tile 0: which buffers are accessed in place. With direct and cma the message is one tile. Each
    // rank reads its chunk from all inputs and writes it to all outputs.
    Use decide();
    const std::byte* input(int rank) const { return inputs_[size_t(rank)]; }  // null: it is staged
    std::byte* output(int rank) const { return outputs_[size_t(rank)]; }      // direct
    // Addresses in the rank's process.
    uint64_t cma_input(int rank) const { return cma_addresses_[size_t(rank)].own_send_address; }
    uint64_t cma_output(int rank) const { return cma_addresses_[size_t(rank)].own_receive_address; }

    // A rank may export addresses before it is known whether others can reach them. Then a round of agreement follows the
    // last tile: each rank posts its answer in the payload, and reads all answers.
    bool agreement_due() const { return agreement_due_ != 0; }
    BufferAddresses answer() const;
    void agree(uint64_t tile);

    bool shared() const { return shared_; }
    bool may_be_using(int peer) const { return shared_ && flags_->inside(peer, last_tile_); }

  private:
    BufferAddresses payload_of(int rank, uint64_t tile) const;
    bool uses_cma() const { return plan_->two_shot.cma && plan_->two_shot.cma->state() == Cma::State::ready; }

    const Plan* plan_;
    const FlagSync* flags_;
    bool exports_input_ = false;
    bool shared_ = false;         // peers use our buffers, or we theirs
    uint64_t last_tile_ = 0;      // the last tile that accesses exported buffers
    uint32_t agreement_due_ = 0;  // bits of Agreement
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
    std::vector<BufferAddresses> cma_addresses_;
};

}  // namespace weft::internal
