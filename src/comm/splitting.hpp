// splitting.hpp: makes a communicator from another one, driven as a call on that one.
// In a split the ranks exchange their colours over the parent's connections; in a shrink all know the members.
// Then the ranks of one colour join.
#pragma once
#include "src/comm/async_operation.hpp"
#include "src/comm/child_watch.hpp"
#include "src/comm/joining.hpp"

namespace weft::internal {

class Splitting final : public AsyncOperation {
  public:
    // Checks the arguments and sets *child to null. With a negative colour, this rank gets no child.
    static Result<std::shared_ptr<Splitting>> split(weftComm* parent, int color, int key, weftComm** child,
                                                    const weftConfig_t* config);
    // `excluded`: ranks of the parent that do not take part, equal on all that do.
    // `abort`: the parent may have failed, and calls in progress on it end.
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
    // Creates the child's handle at once: a stream makes the communicator, or it is not blocking.
    void hand_out();
    // A rank may destroy this before it is done, for example if the parent died. Then no rank waits for this one.
    ~Splitting() override;

  private:
    enum class SplitKind { split, shrink, shrink_and_abort };
    // The entry that a rank sends to all others of the parent.
    struct SplitWord {
        int32_t color, key;
        net::PackedAddresses root;  // where this rank listens as a possible root; for a parent on several hosts
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

    weftComm* parent_;
    weftComm** child_;
    Settings settings_;
    SplitKind kind_ = SplitKind::split;
    int color_ = 0, key_ = 0;
    std::vector<int> excluded_;  // ascending

    Child family_;                     // the members of the child; number 0: not known yet
    std::optional<ChildWatch> watch_;  // null: family_ is not known yet
    std::vector<std::byte> words_;
    bool telling_ = false;
    Joining joining_;
    bool by_id_ = false;  // the ranks meet by an id
    Status failure_;
};

}  // namespace weft::internal
