#include "src/train/local_sgd.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/agreement.hpp"
#include "src/train/local_arithmetic.hpp"

namespace weft::internal::train {

Result<std::shared_ptr<LocalSgd>> LocalSgd::make(Status own, std::vector<Tensor> parameters, LocalSettings settings,
                                                 weftComm_t comm) {
    std::shared_ptr<LocalSgd> made(new LocalSgd(std::move(parameters), std::move(settings)));
    // Before the communicator's first call, so that peers can map the memory.
    if (own) own = made->reserve();
    auto peers = Peers::make(comm);
    if (!peers) return own ? peers.take_status() : std::move(own);
    made->peers_ = std::move(*peers);
    std::string text = described(made->settings_);
    for (size_t i = 0; i < made->parameters_.size(); ++i)
        add_line(text, "parameter", i, made->parameters_[i].name, made->parameters_[i].facts);
    WEFT_TRY(check_agreement(*made->peers_, std::move(text), std::move(own)));
    WEFT_TRY(made->ended_by(broadcast_values(*made->peers_, *made->space_, made->parameters_, 0)));
    for (int i = 0; made->settings_.outer && i < made->parameter_count(); ++i) {
        const Tensor& tensor = made->parameters_[size_t(i)];
        widen(made->part_of(made->anchor_, i), tensor.data, tensor.facts.count, tensor.facts.type);
    }
    return made;
}

LocalSgd::LocalSgd(std::vector<Tensor> parameters, LocalSettings settings)
    : parameters_(std::move(parameters)), settings_(std::move(settings)) {}

LocalSgd::~LocalSgd() {
    queue_.reset();
    peers_.reset();
}

Status LocalSgd::reserve() {
    std::vector<TensorFacts> facts;
    for (int i = 0; i < parameter_count(); ++i) facts.push_back(facts_of(i));
    layout_ = lay_out_fragments(settings_, facts);
    for (FlatBuffer* buffer : {&message_, &anchor_, &momentum_}) {
        if (buffer != &message_ && !settings_.outer) continue;
        auto memory = FlatBuffer::allocate(*space_, layout_.buckets.bytes);
        if (!memory) return memory.take_status();
        *buffer = std::move(*memory);
    }
    auto queue = LaunchQueue::start();
    if (!queue) return queue.take_status();
    queue_ = std::move(*queue);
    return ok();
}

TensorFacts LocalSgd::facts_of(int parameter) const {
    const TensorFacts& facts = parameters_[size_t(parameter)].facts;
    return {settings_.outer ? state_type(facts.type) : facts.type, facts.count};
}

void* LocalSgd::part_of(const FlatBuffer& buffer, int parameter) const {
    return buffer.data() ? buffer.data() + layout_.buckets.places[size_t(parameter)].begin_bytes : nullptr;
}

Status LocalSgd::usable() const {
    if (!failure_) return failure_.copy();
    if (!peers_->aborted()) return ok();
    return fail(error::train_aborted, "weftTrainLocalAbort has ended this object: destroy it and make a new one");
}

Status LocalSgd::ended_by(Status status) {
    if (status) return status;
    if (peers_->aborted())
        status = fail(error::train_aborted, "weftTrainLocalAbort has ended this object: {}", status.sentence());
    else if (status.id() == error::abort_remote)
        status = fail(status, "another rank ended its training object: {}", status.sentence());
    if (failure_) failure_ = status.copy();
    peers_->abort();  // the other ranks wait for this one
    return status;
}

Status LocalSgd::settle() {
    if (!usable()) return ok();
    return ended_by(queue_->wait());
}

void LocalSgd::end_by_exception() noexcept {
    try {
        (void)ended_by({error::internal_exception, "an exception has ended a call of this object"});
    } catch (...) {
        peers_->abort();
    }
}

weftTrainMode_t LocalSgd::mode() const {
    return !settings_.outer && steps_ < settings_.warmup ? weftTrainSynchronize : weftTrainAccumulate;
}

Status LocalSgd::step(bool& changed) {
    changed = false;
    WEFT_TRY(usable());
    const uint64_t step = steps_++;
    int launched = -1, applied = -1;
    if (settings_.outer) {
        launched = launched_after(settings_, steps_);
        applied = applied_after(settings_, steps_);
    } else if (averages(settings_, step)) {
        launched = applied = 0;
    }
    if (launched >= 0) launch(launched);
    if (applied < 0) return ok();
    WEFT_TRY(apply(applied));
    changed = true;
    return ok();
}

void LocalSgd::launch(int fragment) {
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b)
        if (layout_.fragment_of[b] == fragment)
            for (const int parameter : layout_.buckets.buckets[b].parameters) take(parameter);
    queue_->add([this, fragment] { return reduce(fragment); });
}

Status LocalSgd::reduce(int fragment) const {
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b) {
        const Bucket& bucket = layout_.buckets.buckets[b];
        if (layout_.fragment_of[b] != fragment || bucket.count == 0) continue;
        WEFT_TRY(peers_->all_reduce(message_.data() + bucket.begin_bytes, bucket.count, bucket.type, weftAvg));
    }
    return ok();
}

Status LocalSgd::apply(int fragment) {
    WEFT_TRY(ended_by(queue_->wait()));
    WEFT_TRY(check_finite(fragment));
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b)
        if (layout_.fragment_of[b] == fragment)
            for (const int parameter : layout_.buckets.buckets[b].parameters) use(parameter);
    return ok();
}

Status LocalSgd::check_finite(int fragment) {
    bool finite = true;
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b) {
        const Bucket& bucket = layout_.buckets.buckets[b];
        if (layout_.fragment_of[b] == fragment && bucket.count > 0)
            finite &= all_finite(message_.data() + bucket.begin_bytes, bucket.count, bucket.type);
    }
    if (finite) return ok();
    // The results are equal on all ranks, so all ranks come here.
    const auto is_finite = [](const Tensor& each) { return all_finite(each.data, each.facts.count, each.facts.type); };
    const auto wrong = std::find_if_not(parameters_.begin(), parameters_.end(), is_finite);
    const int32_t own = wrong == parameters_.end() ? -1 : int32_t(wrong - parameters_.begin());
    std::vector<int32_t> all(size_t(peers_->ranks()));
    WEFT_TRY(ended_by(peers_->all_gather(&own, all.data(), sizeof own)));
    const auto first = std::find_if(all.begin(), all.end(), [](int32_t each) { return each >= 0; });
    if (first == all.end())
        return fail(error::train_local_values,
                    "the reduction after step {} gave a number that is not finite, and was dropped: reduce the "
                    "learning rate",
                    steps_ - 1);
    const int rank = int(first - all.begin());
    return fail(error::train_local_values,
                "rank {} has a number that is not finite in parameter {}, \"{}\": the reduction after step {} was "
                "dropped. Restore the parameters from the anchors or a checkpoint",
                rank, *first, parameters_[size_t(*first)].name, steps_ - 1)
        .about({.rank = rank});
}

void LocalSgd::take(int parameter) {
    const Tensor& tensor = parameters_[size_t(parameter)];
    if (tensor.facts.count == 0) return;
    void* const message = part_of(message_, parameter);
    if (settings_.outer)
        subtract(message, part_of(anchor_, parameter), tensor.data, tensor.facts.count, tensor.facts.type);
    else
        memcpy(message, tensor.data, tensor.facts.count * size_of(tensor.facts.type));
}

void LocalSgd::use(int parameter) {
    const Tensor& tensor = parameters_[size_t(parameter)];
    if (tensor.facts.count == 0) return;
    const void* const message = part_of(message_, parameter);
    if (settings_.outer)
        step_outer({settings_.learning_rate, settings_.momentum, settings_.mix}, tensor.data,
                   part_of(anchor_, parameter), part_of(momentum_, parameter), message, tensor.facts.count,
                   tensor.facts.type);
    else
        memcpy(tensor.data, message, tensor.facts.count * size_of(tensor.facts.type));
}

Status LocalSgd::restore(uint64_t steps) {
    WEFT_TRY(usable());
    WEFT_TRY(ended_by(queue_->wait()));
    std::vector<uint64_t> all(size_t(peers_->ranks()));
    WEFT_TRY(ended_by(peers_->all_gather(&steps, all.data(), sizeof steps)));
    const auto other = std::find_if(all.begin(), all.end(), [&](uint64_t each) { return each != all[0]; });
    if (other != all.end()) {
        const int rank = int(other - all.begin());
        return fail(error::train_local_restore,
                    "rank 0 restored the state after {} steps, but rank {} that after {} steps: restore one checkpoint "
                    "on all ranks",
                    all[0], rank, *other)
            .about({.rank = rank, .peer = 0});
    }
    steps_ = steps;
    return ok();
}

Result<LocalState> LocalSgd::state(int parameter) {
    WEFT_TRY(usable());
    WEFT_TRY(ended_by(queue_->wait()));
    if (!settings_.outer) return LocalState{nullptr, nullptr, nullptr, facts_of(parameter)};
    const int fragment = layout_.fragment_of[size_t(layout_.buckets.places[size_t(parameter)].bucket)];
    const bool open = fragment == open_after(settings_, steps_);
    return LocalState{part_of(anchor_, parameter), part_of(momentum_, parameter),
                      open ? part_of(message_, parameter) : nullptr, facts_of(parameter)};
}

}  // namespace weft::internal::train
