#include "src/train/hooks/compressor_state.hpp"

#include <cstring>

namespace weft::internal::train {

namespace {

// Then follow the facts and the vectors of each parameter.
struct Head {
    char format[8];
    uint64_t method, parameters;
};
constexpr char current_format[8] = {'w', 'e', 'f', 't', 'c', 'p', 'r', '2'};

struct Facts {
    uint64_t iterations, count, error, momentum, right, sum_begin, sum_error;
    double scale;
};

struct Writer {
    std::vector<std::byte> bytes;
    void add(const void* from, size_t count) {
        const auto* const begin = static_cast<const std::byte*>(from);
        bytes.insert(bytes.end(), begin, begin + count);
    }
    void add(const std::vector<float>& numbers) { add(numbers.data(), numbers.size() * sizeof(float)); }
};

class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
    bool take(void* to, size_t count) {
        if (count > rest_.size()) return false;
        if (count > 0) memcpy(to, rest_.data(), count);
        rest_ = rest_.subspan(count);
        return true;
    }
    bool take(std::vector<float>& numbers, uint64_t count) {
        if (count > rest_.size() / sizeof(float)) return false;
        numbers.resize(count);
        return take(numbers.data(), count * sizeof(float));
    }
    bool at_end() const { return rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
};

bool take_state(Reader& reader, CompressorState& state) {
    Facts facts = {};
    if (!reader.take(&facts, sizeof facts)) return false;
    state.iterations = facts.iterations;
    state.count = facts.count;
    state.sum_begin = facts.sum_begin;
    state.scale = facts.scale;
    const auto is_whole = [&](uint64_t count) { return count == 0 || count == facts.count; };
    return is_whole(facts.error) && is_whole(facts.momentum) && facts.sum_begin <= facts.count &&
           facts.sum_error <= facts.count - facts.sum_begin && reader.take(state.error, facts.error) &&
           reader.take(state.momentum, facts.momentum) && reader.take(state.right, facts.right) &&
           reader.take(state.sum_error, facts.sum_error);
}

}  // namespace

size_t state_bytes(size_t states, size_t numbers) {
    return sizeof(Head) + states * sizeof(Facts) + numbers * sizeof(float);
}

std::vector<std::byte> bytes_of(weftTrainCompression_t method, std::span<const CompressorState> states) {
    Head head = {{}, uint64_t(method), states.size()};
    memcpy(head.format, current_format, sizeof current_format);
    Writer writer;
    writer.add(&head, sizeof head);
    for (const CompressorState& state : states) {
        const Facts facts = {state.iterations,   state.count,     state.error.size(),     state.momentum.size(),
                             state.right.size(), state.sum_begin, state.sum_error.size(), state.scale};
        writer.add(&facts, sizeof facts);
        for (const auto* const numbers : {&state.error, &state.momentum, &state.right, &state.sum_error})
            writer.add(*numbers);
    }
    return std::move(writer.bytes);
}

Result<std::vector<CompressorState>> states_from(weftTrainCompression_t method, std::span<const std::byte> bytes) {
    Reader reader(bytes);
    Head head = {};
    if (!reader.take(&head, sizeof head) || memcmp(head.format, current_format, sizeof current_format) != 0)
        return fail(error::train_compressor, "the {} bytes are not the state of a compressor of this version",
                    bytes.size());
    if (head.method != uint64_t(method))
        return fail(error::train_compressor, "the state is of method {}, but the compressor has method {}", head.method,
                    int(method));
    std::vector<CompressorState> states;
    bool complete = head.parameters <= bytes.size() / sizeof(Facts);
    for (uint64_t i = 0; complete && i < head.parameters; ++i) complete = take_state(reader, states.emplace_back());
    if (!complete || !reader.at_end())
        return fail(error::train_compressor,
                    "the state of the compressor is damaged: it has {} bytes for {} parameters", bytes.size(),
                    head.parameters);
    return states;
}

}  // namespace weft::internal::train
