// text_read.cpp: reads text as schedules, word by word and without recursion. The first fault ends it.
#include <charconv>
#include <optional>

#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal {

namespace {

struct TextWord {
    std::string_view text;  // empty: the end of the line
    int column = 1;
    bool is_number() const {
        return !text.empty() &&
               (std::isdigit(uint8_t(text.back())) && (std::isdigit(uint8_t(text[0])) || text[0] == '-'));
    }
};

// The words of a line: names, numbers (a minus sign directly before a digit belongs to it), "->" and single signs.
class Line {
  public:
    Line(std::string_view text, int number) : text_(text.substr(0, text.find('#'))), number_(number) { advance(); }
    const TextWord& word() const { return word_; }
    bool ended() const { return word_.text.empty(); }
    bool at(std::string_view text) const { return word_.text == text; }
    void advance() {
        while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\t' || text_[place_] == '\r'))
            ++place_;
        const size_t first = place_;
        auto digit_at = [&](size_t place) { return place < text_.size() && std::isdigit(uint8_t(text_[place])); };
        if (place_ == text_.size()) {
        } else if (is_name_sign(text_[place_]) || (text_[place_] == '-' && digit_at(place_ + 1))) {
            do ++place_;
            while (place_ < text_.size() && is_name_sign(text_[place_]));
        } else {
            place_ += text_.substr(place_, 2) == "->" ? 2 : 1;
        }
        word_ = {text_.substr(first, place_ - first), int(first) + 1};
    }
    template <class... Arguments>
    Status wrong(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
        return fail(error::file_syntax, "line {}, column {}: {}", number_, word_.column,
                    fmt::format(format, std::forward<Arguments>(arguments)...));
    }
    // The word at this place, short and printable, for the sentence.
    std::string found() const {
        if (ended()) return "the line ends";
        std::string text = "`";
        for (char letter : word_.text.substr(0, 40)) text += letter >= ' ' && letter <= '~' ? letter : '?';
        return "found " + text + "`";
    }
    Status expect(std::string_view text) {
        if (!at(text)) return wrong("expected `{}`, {}", text, found());
        advance();
        return ok();
    }
    template <class Integer>
    Status number(const char* what, Integer& value) {
        const auto [end, error] = std::from_chars(word_.text.data(), word_.text.data() + word_.text.size(), value);
        if (ended() || error == std::errc::invalid_argument || end != word_.text.data() + word_.text.size())
            return wrong("expected {}, {}", what, found());
        if (error != std::errc()) return wrong("{} is out of range", what);
        advance();
        return ok();
    }
    int number() const { return number_; }

  private:
    std::string_view text_;
    int number_;
    size_t place_ = 0;
    TextWord word_;
};

std::optional<Opcode> opcode_named(std::string_view name) {
#define WEFT_INSTRUCTION(opcode, kind, uses, help) \
    if (name == #opcode) return Opcode::opcode;
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
    return {};
}
constexpr const char* opcode_list =
#define WEFT_INSTRUCTION(opcode, kind, uses, help) " " #opcode
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
    ;

std::string collective_list() {
    std::string list;
    for (const Collective collective : all_collectives) list += fmt::format(" {}", name_of(collective));
    return list;
}

Buffer buffer_named(std::string_view name) {
    if (name == "input") return Buffer::input;
    if (name == "output") return Buffer::output;
    if (name == "slot") return Buffer::slot;
    if (name == "inputs") return Buffer::inputs;
    if (name == "outputs") return Buffer::outputs;
    if (name == "either") return Buffer::either;
    if (name == "scratch") return Buffer::scratch;
    return Buffer::none;
}

// 5, or (3 - 2 i) mod 4, or 8 + (3 + i) mod 4. Of a span that wraps around, 8 + (3) mod 4.
Status read_index(Line& line, const char* what, Index& index) {
    index = {};
    if (!line.at("(")) {
        WEFT_TRY(line.number(what, index.base));
        if (!line.at("+")) return ok();
        line.advance();
    }
    WEFT_TRY(line.expect("("));
    WEFT_TRY(line.number("the place of iteration 0", index.start));
    if (line.at(")")) {
        line.advance();
        WEFT_TRY(line.expect("mod"));
        return line.number("a modulus", index.modulus);
    }
    const bool backwards = line.at("-");
    if (!backwards && !line.at("+")) return line.wrong("expected `+` or `-`, {}", line.found());
    line.advance();
    int32_t distance = 1;
    if (line.word().is_number()) {
        // Read with its sign, because the lowest number has no positive counterpart.
        const std::string digits = (backwards ? "-" : "") + std::string(line.word().text.substr(0, 20));
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), distance);
        if (error != std::errc() || end != digits.data() + digits.size())
            return line.wrong("the distance from one iteration to the next is out of range");
        line.advance();
    } else if (backwards) {
        distance = -1;
    }
    index.step = distance;
    WEFT_TRY(line.expect("i"));
    WEFT_TRY(line.expect(")"));
    WEFT_TRY(line.expect("mod"));
    return line.number("a modulus", index.modulus);
}

Status read_header(Line& line, Schedule& schedule) {
    schedule = {};
    line.advance();
    if (line.ended()) return line.wrong("expected the algorithm's name, the line ends");
    // one more, so that validate() finds a name that is too long
    schedule.algorithm = line.word().text.substr(0, name_letters_most + 1);
    line.advance();
    const auto collective = collective_named(line.word().text);
    if (!collective) return line.wrong("expected a collective (there are{}), {}", collective_list(), line.found());
    schedule.collective = *collective;
    line.advance();
    WEFT_TRY(line.expect("rank"));
    WEFT_TRY(line.number("a rank", schedule.rank));
    WEFT_TRY(line.expect("of"));
    WEFT_TRY(line.number("the number of ranks", schedule.ranks));
    if (line.at("root")) {
        line.advance();
        if (line.at("-1")) return line.wrong("expected a rank; a collective without root leaves it out");
        WEFT_TRY(line.number("a root", schedule.root));
    }
    WEFT_TRY(line.expect("channels"));
    WEFT_TRY(line.number("the number of channels", schedule.channels));
    WEFT_TRY(line.expect("chunks"));
    WEFT_TRY(line.number("the number of chunks", schedule.chunks));
    if (line.at("tiles")) {
        line.advance();
        WEFT_TRY(line.number("the number of tiles", schedule.tiles));
    }
    if (line.at("span")) {
        line.advance();
        WEFT_TRY(line.number("the largest span", schedule.span));
    }
    if (line.at("fifo")) {
        line.advance();
        WEFT_TRY(line.number("the FIFO depth", schedule.fifo_depth));
    }
    if (line.at("scratch")) {
        line.advance();
        WEFT_TRY(line.number("the number of cells", schedule.scratch));
    }
    if (line.at("wide")) {
        line.advance();
        WEFT_TRY(line.number("the width of the slots of the flag block", schedule.wide));
    }
    if (line.at("bytes")) {
        line.advance();
        WEFT_TRY(line.number("bytes", schedule.least_bytes));
        if (line.at("to")) {
            line.advance();
            WEFT_TRY(line.number("bytes", schedule.most_bytes));
        }
    }
    if (line.at("board")) {
        line.advance();
        const bool all = line.ended();
        while (line.word().is_number()) WEFT_TRY(line.number("a rank", schedule.shared_ranks.emplace_back()));
        // A number of ranks out of range is refused with the whole header.
        for (int rank = 0; all && rank < std::min(schedule.ranks, ranks_most); ++rank)
            schedule.shared_ranks.push_back(rank);
    }
    return line.ended()
               ? ok()
               : line.wrong(
                     "expected `tiles`, `span`, `fifo`, `scratch`, `wide`, `bytes`, `board` or the line's end, {}",
                     line.found());
}

Status read_block(Line& line, Block& block) {
    line.advance();
    WEFT_TRY(line.expect("channel"));
    WEFT_TRY(line.number("a channel", block.channel));
    for (auto [name, end] : {std::pair{"source", &block.source}, std::pair{"target", &block.target}}) {
        if (!line.at(name)) continue;
        line.advance();
        if (line.at("-1")) return line.wrong("expected a rank; a block without {} leaves it out", name);
        WEFT_TRY(line.number("a rank", *end));
    }
    return line.ended() ? ok() : line.wrong("expected `source`, `target` or the line's end, {}", line.found());
}

Status read_cell(Line& line, int32_t& cell) {
    line.advance();
    if (line.at("-1")) return line.wrong("expected a cell; scratch without cells has none");
    return line.number("a cell", cell);
}

Status read_operands(Line& line, Instruction& instruction) {
    if (kind_of(instruction.opcode) == OpcodeKind::flag) {
        if (!line.at("entry") && !line.at("done")) return line.wrong("expected `entry` or `done`, {}", line.found());
        instruction.phase = line.at("done");
        line.advance();
        return ok();
    }
    if (instruction.opcode == Opcode::nop) return ok();
    if (!line.at("[")) {
        instruction.source = buffer_named(line.word().text);
        if (instruction.source == Buffer::none)
            return line.wrong("expected input, output, slot, scratch, inputs or either, {}", line.found());
        line.advance();
    }
    WEFT_TRY(line.expect("["));
    WEFT_TRY(read_index(line, "a chunk", instruction.chunk));
    if (line.at("count")) {
        line.advance();
        WEFT_TRY(line.number("the number of chunks", instruction.count));
    }
    if (line.at("at")) WEFT_TRY(read_cell(line, instruction.source_cell));
    WEFT_TRY(line.expect("]"));
    if (!line.at("of")) return ok();
    line.advance();
    WEFT_TRY(line.expect("rank"));
    return read_index(line, "a rank", instruction.rank);
}

Status read_instruction(Line& line, int step, Instruction& instruction) {
    if (line.word().is_number()) {
        if (line.word().text != std::to_string(step))
            return line.wrong("this is step {} of its block, {}", step, line.found());
        line.advance();
    }
    const auto opcode = opcode_named(line.word().text);
    if (!opcode)
        return line.wrong("expected `schedule`, `block` or an instruction (there are{}), {}", opcode_list,
                          line.found());
    instruction.opcode = *opcode;
    line.advance();
    WEFT_TRY(read_operands(line, instruction));
    if (line.at("->")) {
        line.advance();
        for (Buffer target; (target = buffer_named(line.word().text)) != Buffer::none;) {
            instruction.targets |= target;
            line.advance();
        }
        if (line.at("at")) WEFT_TRY(read_cell(line, instruction.target_cell));
        if (instruction.targets == 0) return line.wrong("expected output, slot, scratch or outputs, {}", line.found());
    }
    if (line.at("into")) {
        line.advance();
        instruction.moves = true;
        WEFT_TRY(read_index(line, "a chunk", instruction.into));
    }
    if (line.at("left")) {
        line.advance();
        instruction.left = true;
    }
    if (line.at("finish")) {
        line.advance();
        instruction.finish = true;
    }
    if (line.at("repeat")) {
        line.advance();
        WEFT_TRY(line.number("the number of iterations", instruction.repeat));
    }
    if (line.at("tile")) {
        line.advance();
        WEFT_TRY(line.number("a tile", instruction.tile));
    }
    if (line.at("after")) {
        line.advance();
        WEFT_TRY(line.number("a block", instruction.after.block));
        WEFT_TRY(line.expect("."));
        WEFT_TRY(line.number("a step", instruction.after.step));
        if (line.at("ago")) {
            line.advance();
            WEFT_TRY(line.number("the number of runs", instruction.after.ago));
        }
        if (instruction.after == Dependency()) return line.wrong("block -1 does not exist");
    }
    return line.ended()
               ? ok()
               : line.wrong("expected `into`, `left`, `finish`, `repeat`, `tile`, `after` or the line's end, {}",
                            line.found());
}

// The schedule that is read, and the lines of its parts for the place of an error.
constexpr size_t shared_ranks_most = size_t(1) << 24;  // of all schedules of a text: `board` means many with one word

struct Draft {
    Schedule schedule;
    int line = 0;
    std::vector<std::pair<int, std::vector<int>>> lines;  // of each block, and of its steps

    Status close() const {
        const auto found = find_objection(schedule);
        if (!found) return ok();
        int where = line;
        if (found->block >= 0)
            where = found->step < 0 ? lines[found->block].first : lines[found->block].second[found->step];
        return fail(error::schedule_invalid, "line {}, column 1: {}", where, found->sentence);
    }
};

}  // namespace

Result<std::vector<Schedule>> read_texts(std::string_view text) {
    std::vector<Schedule> schedules;
    std::optional<Draft> draft;
    size_t shared_rank_count = 0;
    for (int number = 1; !text.empty(); ++number) {
        const size_t end = text.find('\n');
        Line line(text.substr(0, end), number);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (line.ended()) continue;
        if (line.at("schedule")) {
            if (draft) {
                WEFT_TRY(draft->close());
                schedules.push_back(std::move(draft->schedule));
            }
            draft.emplace().line = number;
            WEFT_TRY(read_header(line, draft->schedule));
            shared_rank_count += draft->schedule.shared_ranks.size();
            if (shared_rank_count > shared_ranks_most)
                return line.wrong("the flag blocks of this text have too many ranks");
        } else if (!draft) {
            return line.wrong("expected `schedule`, {}", line.found());
        } else if (line.at("block")) {
            draft->lines.push_back({number, {}});
            WEFT_TRY(read_block(line, draft->schedule.blocks.emplace_back()));
        } else if (draft->schedule.blocks.empty()) {
            return line.wrong("expected `block`, {}", line.found());
        } else {
            auto& instructions = draft->schedule.blocks.back().instructions;
            draft->lines.back().second.push_back(number);
            const int step = int(instructions.size());
            WEFT_TRY(read_instruction(line, step, instructions.emplace_back()));
        }
    }
    if (!draft) return fail(error::file_syntax, "line 1, column 1: expected `schedule`, the text ends");
    WEFT_TRY(draft->close());
    schedules.push_back(std::move(draft->schedule));
    return schedules;
}

Result<Schedule> read_text(std::string_view text) {
    auto schedules = read_texts(text);
    if (!schedules) return schedules.take_status();
    if (schedules->size() != 1)
        return fail(error::file_syntax, "line 1, column 1: expected one schedule, found {}", schedules->size());
    return std::move((*schedules)[0]);
}

}  // namespace weft::internal
