#include "src/train/hooks/compressor.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/datatype.hpp"
#include "src/train/hooks/largest_numbers.hpp"

namespace weft::internal::train {

namespace {

bool all_finite(std::span<const float> numbers) { return std::isfinite(largest_magnitude(numbers)); }

// Equal on all ranks, and different for each parameter and iteration.
uint64_t seed_of(uint64_t seed, int parameter, uint64_t iteration) {
    return (seed * 0x9e3779b97f4a7c15u + uint64_t(parameter)) * 0xbf58476d1ce4e5b9u + iteration * 1009;
}

}  // namespace

Compressor::Compressor(const CompressorSettings& settings) : settings_(settings), power_sgd_(settings.rank) {}

std::string Compressor::described() const {
    return fmt::format(
        "compress with method {}, startIteration {}, errorFeedback {}, rank {}, leastRate {}, warmStart {}, seed {}, "
        "density {}, blockCount {}, momentum {}, float8 {}, layerScales {}",
        int(settings_.method), settings_.start_iteration, int(settings_.error_feedback), settings_.rank,
        settings_.least_rate, int(settings_.warm_start), settings_.seed, settings_.density, settings_.block,
        settings_.momentum, name_of(settings_.float8), int(settings_.layer_scales));
}

Status Compressor::check_free(const std::shared_ptr<const char>& life) const {
    const auto served = serves_.lock();
    if (!served || served == life) return ok();
    return fail(error::train_compressor,
                "the compressor serves another weftTrainDdp, whose unsent gradients it keeps: destroy that one first, "
                "or make a compressor for each");
}

Status Compressor::check_counts(std::span<const CompressorState> states, std::span<const TensorFacts> parameters) {
    if (states.empty()) return ok();
    if (states.size() != parameters.size())
        return fail(error::train_compressor, "the compressor has state of {} parameters, but the model has {}",
                    states.size(), parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i)
        if (states[i].count != parameters[i].count)
            return fail(error::train_compressor,
                        "the compressor has state of {} elements for parameter {}, which has {}", states[i].count, i,
                        parameters[i].count);
    return ok();
}

void Compressor::serve(const std::shared_ptr<const char>& life, std::span<const TensorFacts> parameters) {
    serves_ = life;
    parameters_.assign(parameters.begin(), parameters.end());
    if (!states_.empty()) return;
    states_.resize(parameters.size());
    for (size_t i = 0; i < states_.size(); ++i) states_[i].count = parameters[i].count;
}

Status Compressor::reduce(HookOwner& owner, const weftTrainBucket_t& bucket) {
    WEFT_TRY(check_free(owner.life));
    if (serves_.expired()) {
        WEFT_TRY(check_model(owner.buckets->parameters()));
        serve(owner.life, owner.buckets->parameters());
    }
    WEFT_TRY(find_members(owner, bucket));
    const bool first = members_.front().state->iterations < settings_.start_iteration;
    WEFT_TRY(first ? average_first(bucket) : exchange(*owner.peers, bucket));
    for (const Member& member : members_) ++member.state->iterations;
    compressed_ = !first;
    return ok();
}

Status Compressor::load(std::span<const std::byte> bytes) {
    auto states = states_from(settings_.method, bytes);
    if (!states) return states.take_status();
    if (!serves_.expired()) WEFT_TRY(check_counts(*states, parameters_));
    states_ = std::move(*states);
    return ok();
}

Status Compressor::find_members(const HookOwner& owner, const weftTrainBucket_t& bucket) {
    const Bucket& own = owner.buckets->layout().buckets[size_t(owner.index)];
    const auto parameters = owner.buckets->parameters();
    if (owner.stream)
        return fail(error::gpu_unavailable, "compressors serve host memory, but the bucket lies on a device");
    if (bucket.count != own.count || bucket.datatype != own.type)
        return fail(error::argument_value, "the bucket has {} elements of {}, but {} of {} were given: pass all of it",
                    own.count, name_of(own.type), bucket.count, name_of(bucket.datatype));
    members_.clear();
    for (size_t i = 0; i < own.parameters.size(); ++i) {
        const int number = own.parameters[i];
        const TensorFacts& facts = parameters[size_t(number)];
        CompressorState& state = states_[size_t(number)];
        members_.push_back({&state, own.offsets[i], facts.count, facts.rows, number});
    }
    return ok();
}

Status Compressor::average_first(const weftTrainBucket_t& bucket) {
    WEFT_TRY(average(bucket));
    if (!has_momentum()) return ok();
    values_.resize(bucket.count);
    read_numbers(values_.data(), bucket.data, bucket.count, bucket.datatype);
    if (!all_finite(values_)) return ok();
    add_momentum();
    keep_momentum();
    return ok();
}

void Compressor::add_momentum() {
    const auto factor = float(settings_.momentum);
    for (const Member& member : members_) {
        std::vector<float>& momentum = member.state->momentum;
        momentum.resize(member.count);
        float* const values = values_.data() + member.begin;
        for (size_t i = 0; i < member.count; ++i) values[i] = factor * momentum[i] + (1 - factor) * values[i];
    }
}

void Compressor::keep_momentum() {
    for (const Member& member : members_)
        std::copy_n(values_.data() + member.begin, member.count, member.state->momentum.data());
}

// The momentum of exact iterations is equal on all ranks, and so are the scales.
void Compressor::scale_layers() {
    if (!settings_.layer_scales || !has_momentum()) return;
    for (const Member& member : members_) {
        CompressorState& state = *member.state;
        if (state.scale == 0) {
            double squares = 0;
            for (const float number : state.momentum) squares += double(number) * double(number);
            const double mean = std::sqrt(squares / double(std::max<size_t>(1, member.count)));
            state.scale = mean > 0 ? 1 / mean : 1;
        }
        for (size_t i = 0; i < member.count; ++i) values_[member.begin + i] *= float(state.scale);
    }
}

void Compressor::unscale_layers() {
    if (!settings_.layer_scales || !has_momentum()) return;
    for (const Member& member : members_)
        for (size_t i = 0; i < member.count; ++i) values_[member.begin + i] /= float(member.state->scale);
}

Status Compressor::exchange(const Peers& peers, const weftTrainBucket_t& bucket) {
    const double divisor = bucket.divisor;
    take_part(peers, divisor, bucket.count);
    values_.resize(bucket.count);
    read_numbers(values_.data(), bucket.data, bucket.count, bucket.datatype);
    if (has_momentum()) add_momentum();
    scale_layers();
    errors_.resize(settings_.error_feedback ? bucket.count : 0);
    for (const Member& member : members_) {
        if (!settings_.error_feedback) break;
        member.state->error.resize(member.count);
        for (size_t i = 0; i < member.count; ++i) values_[member.begin + i] += member.state->error[i];
    }
    WEFT_TRY(send(peers, divisor));
    unscale_layers();
    if (all_finite(values_)) keep_state();
    write_numbers(bucket.data, values_.data(), bucket.count, bucket.datatype);
    return ok();
}

Status Compressor::send(const Peers& peers, double divisor) {
    if (settings_.method == weftTrainPowerSgd) return send_matrices(peers, divisor);
    if (settings_.method == weftTrainTopK) return send_largest(peers, divisor);
    if (settings_.method == weftTrainInt8) {
        Int8Codec codec(settings_.block);
        return exchange_.run(peers, codec, divisor, values_, errors_, sum_errors_);
    }
    if (settings_.method == weftTrainOneBit) {
        OneBitCodec codec;
        return exchange_.run(peers, codec, divisor, values_, errors_, sum_errors_);
    }
    Float8Codec codec(settings_.float8);
    return exchange_.run(peers, codec, divisor, values_, errors_, sum_errors_);
}

void Compressor::take_part(const Peers& peers, double divisor, size_t count) {
    sum_errors_.clear();
    const bool has_sums = settings_.method != weftTrainPowerSgd && settings_.method != weftTrainTopK;
    if (!has_sums || !settings_.error_feedback) return;
    const size_t unit = settings_.method == weftTrainOneBit ? OneBitCodec().part_unit(peers.ranks())
                        : settings_.method == weftTrainInt8 ? settings_.block
                                                            : 1;
    const NumberRange mine = part_of(count, peers.ranks(), peers.rank(), unit);
    for (const Member& member : members_) {
        CompressorState& state = *member.state;
        const size_t begin = std::clamp(mine.begin, member.begin, member.begin + member.count);
        const size_t end = std::clamp(mine.begin + mine.count, member.begin, member.begin + member.count);
        if (state.sum_begin != begin - member.begin || state.sum_error.size() != end - begin) {
            // Another rank adds these elements up now. This rank sends them with its own, of which the average is less.
            state.error.resize(member.count);
            for (size_t i = 0; i < state.sum_error.size(); ++i)
                state.error[state.sum_begin + i] += float(divisor) * state.sum_error[i];
            state.sum_begin = begin - member.begin;
            state.sum_error.assign(end - begin, 0);
        }
        sum_errors_.insert(sum_errors_.end(), state.sum_error.begin(), state.sum_error.end());
    }
}

Status Compressor::send_matrices(const Peers& peers, double divisor) {
    std::vector<LowRankMatrix> matrices;
    std::vector<std::span<float>> whole;
    rights_.resize(members_.size());
    for (size_t i = 0; i < members_.size(); ++i) {
        const Member& member = members_[i];
        float* const numbers = values_.data() + member.begin;
        const size_t rows = member.rows, columns = rows > 0 ? member.count / rows : 0;
        rights_[i].clear();
        if (!is_worth_rank(rows, columns, settings_.rank, settings_.least_rate)) {
            whole.emplace_back(numbers, member.count);
            continue;
        }
        if (settings_.warm_start) rights_[i] = member.state->right;
        matrices.push_back(
            {numbers, rows, columns, &rights_[i], seed_of(settings_.seed, member.parameter, member.state->iterations)});
    }
    if (!errors_.empty()) errors_ = values_;
    WEFT_TRY(power_sgd_.run(peers, divisor, matrices, whole));
    // The errors of all ranks add up to the rest of the sum, which is the result times the divisor.
    const auto share = float(divisor / peers.ranks());
    for (size_t i = 0; i < errors_.size(); ++i) errors_[i] -= values_[i] * share;
    for (const std::span<float> numbers : whole)
        if (!errors_.empty()) std::fill_n(errors_.begin() + (numbers.data() - values_.data()), numbers.size(), 0.0f);
    return ok();
}

Status Compressor::send_largest(const Peers& peers, double divisor) {
    const size_t count = values_.size();
    if (count > UINT32_MAX)
        return fail(error::argument_count, "the bucket has {} elements; top-k serves at most {}", count, UINT32_MAX);
    const size_t kept = std::clamp<size_t>(size_t(std::ceil(settings_.density * double(count))), 1, count);
    const std::vector<IndexedNumber> own = largest_numbers(values_, kept);
    std::vector<IndexedNumber> all(kept * size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(own.data(), all.data(), kept * sizeof(IndexedNumber)));
    if (!errors_.empty()) {
        errors_ = values_;
        for (const IndexedNumber& each : own) errors_[each.index] = 0;
    }
    std::fill(values_.begin(), values_.end(), 0.0f);
    for (const IndexedNumber& each : all) {
        if (each.index >= count)
            return fail(error::internal_exception, "a rank sent element {} of a bucket of {}", each.index, count);
        values_[each.index] += each.number;
    }
    for (float& value : values_) value /= float(divisor);
    return ok();
}

void Compressor::keep_state() {
    if (has_momentum()) keep_momentum();
    const float* sum_errors = sum_errors_.data();
    for (size_t i = 0; i < members_.size(); ++i) {
        CompressorState& state = *members_[i].state;
        if (settings_.error_feedback)
            std::copy_n(errors_.data() + members_[i].begin, members_[i].count, state.error.data());
        if (!sum_errors_.empty()) {
            std::copy_n(sum_errors, state.sum_error.size(), state.sum_error.data());
            sum_errors += state.sum_error.size();
        }
        if (settings_.method == weftTrainPowerSgd && settings_.warm_start) state.right = rights_[i];
    }
}

}  // namespace weft::internal::train
