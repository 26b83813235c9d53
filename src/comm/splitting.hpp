// splitting.hpp: a communicator made from another one, as a call on that: the ranks tell each other their colours over
// the parent's own connections (or, where it shrinks, know already who takes part), then those of one colour join.
#pragma once
#include "src/comm/async_operation.hpp"
#include "src/comm/joining.hpp"
#include "src/control/remote_health.hpp"
#include "src/rendezvous/split_rendezvous.hpp"

namespace weft::internal {

class Splitting final : public AsyncOperation {
  public:
    // Check the arguments; *child becomes null. A negative colour: this rank gets none.
    static Result<std::shared_ptr<Splitting>> split(weftComm* parent, int color, int key, weftComm** child,
                                                    const weftConfig_t* config);
    // `excluded`: ranks of the parent that do not take part, alike on all that do. `abort`: the parent may have failed,
    // and what is in progress on it ends.
    static Result<std::shared_ptr<Splitting>> shrink(weftComm* parent, std::vector<int> excluded, weftComm** child,
                                                     const weftConfig_t* config, bool abort);

    const weftComm* child() const override { return joining_.handle.get(); }

    void announce() override;
    Status begin() override;
    Progress advance() override;
    Status pause(bool may_sleep) override;
    Status take_failure() override {
        if (joining_.handle) joining_.handle->deliver(failure_);
        return std::move(failure_);
    }

    Splitting(weftComm* parent, weftComm** child, Settings settings);
    // The child's handle is there at once: a stream will make it, or it shall not block.
    void hand_out();
    // Thrown away on the way, as when the parent has died: nobody waits for this rank in vain.
    ~Splitting() override;

  private:
    enum class SplitKind { split, shrink, shrink_and_abort };
    // What a rank tells all others of the parent.
    struct SplitWord {
        int32_t color, key;
        net::PackedAddresses root;  // where it could be the root; of a parent on several hosts
    };
    Communicator& parent() const { return *parent_->communicator; }
    size_t word_bytes() const;
    SplitWord word(int rank) const;
    Status tell();
    Status choose_child();
    Status begin_joining(Child child, const net::PackedAddresses& root, int root_rank);
    Status make_rendezvous(const net::PackedAddresses& root, int root_rank);
    void tell_failure(const Status& failure);
    std::string why_aborted() const;
    Status begin_shrinking();
    Status look_at_parent();
    Status look_at_remote_ranks(int64_t now);
    bool is_gone(int rank) const;
    Status has_gone(int rank) const;
    Status has_given_up(int rank) const;

    weftComm* parent_;
    weftComm** child_;
    Settings settings_;
    SplitKind kind_ = SplitKind::split;
    int color_ = 0, key_ = 0;
    std::vector<int> excluded_;  // ascending

    Child family_;  // those who are to be in the child; number 0: not known yet
    std::optional<GivenUp> given_up_;
    std::optional<RemoteHealth> health_;  // of the parent's ranks
    std::vector<std::byte> words_;
    bool telling_ = false;
    Joining joining_;
    bool by_id_ = false;  // they meet by an id
    int64_t begun_us_ = 0, next_look_us_ = 0;
    int64_t missed_us_ = 0;  // since when one on another host is found to be gone; 0: none is
    Status failure_;
};

}  // namespace weft::internal
