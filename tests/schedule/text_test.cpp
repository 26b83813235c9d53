// The text form: a written schedule is read back equal, and any text ends in a schedule or an error.
#include "src/schedule/text.hpp"

#include <random>

#include "src/schedule/builder.hpp"
#include "src/schedule/validate.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

TEST_CASE("the text of a schedule follows its algorithm", "[schedule]") {
    const Schedule schedule = registry::find_algorithm("ring")->build({.ranks = 4, .rank = 1}, {});
    CHECK(write_text(schedule) ==
          "schedule ring all_reduce rank 1 of 4 channels 1 chunks 4 fifo 2\n"
          "block channel 0 source 0 target 2\n"
          "  0 send input[0]\n"
          "  1 recv_reduce_send input[(3 - i) mod 4] repeat 2\n"
          "  2 recv_reduce_copy_send input[1] -> output finish\n"
          "  3 recv_copy_send [(0 - i) mod 4] -> output repeat 2\n"
          "  4 recv [2] -> output\n");
}

TEST_CASE("every schedule is read back equal from its text", "[schedule]") {
    for (int ranks : {1, 2, 3, 4, 7, 64}) {
        if (small() && sanitized && ranks > 4) continue;
        for (int rank = 0; rank < ranks; ++rank) {
            for (const Algorithm& row : registry::algorithms()) {
                if (const Layout layout{.ranks = ranks, .rank = rank}; !row.refusal(layout)) {
                    const bool rooted = facts_of(row.collective).rooted;
                    const Schedule fused = row.build(layout, {.channels = 3, .root = rooted ? ranks - 1 : -1});
                    const auto read_fused = read_text(write_text(fused));
                    REQUIRE(read_fused.ok());
                    CHECK(*read_fused == fused);
                }
                for (const Case& one : cases_of(row, 2, ranks)) {
                    const Schedule schedule = schedule_of(one, ranks, rank);
                    const auto read = read_text(write_text(schedule));
                    INFO(write_text(schedule) << read.status().sentence());
                    REQUIRE(read.ok());
                    CHECK(*read == schedule);
                }
            }
        }
    }
    Schedule two_blocks = two_block_ring(5, 3);
    CHECK(*read_text(write_text(two_blocks)) == two_blocks);
    for (const auto& [least, most] : {std::pair<int64_t, int64_t>{5, INT64_MAX}, {0, 7}, {5, 7}, {7, 7}}) {
        two_blocks.least_bytes = least;
        two_blocks.most_bytes = most;
        CHECK(*read_text(write_text(two_blocks)) == two_blocks);
    }
}

// A random valid instruction, unlike those of algorithms.
static Schedule random_schedule(std::mt19937& random) {
    auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
    auto index = [&](int end) {
        Index result;
        result.modulus = number(1, end);
        result.base = number(0, end - result.modulus);
        result.start = number(0, 3) ? number(-9, 9) : number(INT32_MIN, INT32_MAX);
        result.step = number(0, 3) ? number(-9, 9) : number(0, 1) ? INT32_MIN : INT32_MAX;
        return result;
    };
    Schedule schedule;
    schedule.algorithm = number(0, 1) ? "a" : "Some_name_9";
    schedule.collective = Collective::all_reduce;
    schedule.ranks = number(2, 9);
    schedule.rank = number(0, schedule.ranks - 1);
    schedule.channels = number(1, 9);
    schedule.chunks = number(1, chunks_most);
    schedule.tiles = number(1, 4);
    schedule.fifo_depth = number(1, 9);
    schedule.span = number(1, 3);
    if (number(0, 1)) schedule.scratch = number(1, 9);
    schedule.shared_ranks = {schedule.rank};
    if (number(0, 1))
        for (schedule.shared_ranks = {}; int(schedule.shared_ranks.size()) < schedule.ranks;)
            schedule.shared_ranks.push_back(int(schedule.shared_ranks.size()));
    schedule.blocks.resize(number(0, 3));
    for (int b = 0; b < int(schedule.blocks.size()); ++b) {
        Block& block = schedule.blocks[b];
        block.channel = number(0, schedule.channels - 1);
        block.source = number(-1, schedule.ranks - 1);
        block.target = number(-1, schedule.ranks - 1);
        block.instructions.resize(number(0, 6));
        for (Instruction& it : block.instructions) {
            it.opcode = Opcode(number(0, int(Opcode::two_shot)));
            it.source = Buffer(1 << number(0, 6));
            it.targets = number(0, 3) ? uint8_t(number(0, 31)) : uint8_t(Buffer::scratch | number(0, 2));
            it.finish = number(0, 1);
            it.tile = number(0, schedule.tiles - 1);
            if (kind_of(it.opcode) == OpcodeKind::flag) {
                it.phase = uint8_t(number(0, 1));
            } else if (it.opcode != Opcode::nop) {
                it.left = number(0, 1);
                if (number(0, 3) == 0) it.count = number(1, 3);
                it.chunk = index(schedule.chunks);
                it.repeat = number(1, repeat_most);
            }
            if (number(0, 1)) it.rank = index(schedule.ranks);
            if (number(0, 1)) it.source = Buffer::none;
            if (schedule.scratch > 0 && number(0, 7)) {
                if (it.source & Buffer::scratch) it.source_cell = number(0, schedule.scratch - 1);
                if (it.targets & Buffer::scratch) it.target_cell = number(0, schedule.scratch - 1);
                if (it.source_cell >= 0 || it.target_cell >= 0) it.count = it.repeat = 1;
            }
            if (number(0, 2) == 0) it.after = {number(0, 2), number(0, 5), number(0, 3) ? 0 : number(0, 9)};
        }
    }
    return schedule;
}

TEST_CASE("any valid schedule is read back equal, however strange", "[schedule]") {
    std::mt19937 random(seed());
    int valid = 0;
    for (int round = 0; round < 200'000 && valid < 2000; ++round) {
        const Schedule schedule = random_schedule(random);
        const std::string text = write_text(schedule);
        const auto read = read_text(text);
        INFO("seed " << seed() << "\n" << text << read.status().sentence());
        // An invalid schedule may hold more than a text can say.
        if (!validate(schedule)) continue;
        ++valid;
        REQUIRE(read.ok());
        REQUIRE(*read == schedule);
    }
    CHECK(valid == 2000);
}

TEST_CASE("comments, blank lines, other spacing and missing step numbers do not matter", "[schedule]") {
    const auto schedule = read_text(
        "# a copy\r\n\n  schedule\tcopy all_reduce rank 0 of 1 channels 1 chunks 3   # header\r\n"
        "block channel 0\n   copy input[ 1+( 0+i )mod 2 ]->output finish repeat 2\n1 copy input [0] -> output finish");
    INFO(schedule.status().sentence());
    REQUIRE(schedule.ok());
    CHECK(write_text(*schedule) ==
          "schedule copy all_reduce rank 0 of 1 channels 1 chunks 3\n"
          "block channel 0\n"
          "  0 copy input[1 + (0 + i) mod 2] -> output finish repeat 2\n"
          "  1 copy input[0] -> output finish\n");
}

TEST_CASE("a fault in a text is reported with its line and column", "[schedule]") {
    const std::string header = "schedule x all_reduce rank 0 of 4 channels 1 chunks 4 fifo 2\n";
    const std::string block = header + "block channel 0 source 3 target 1\n";
    const std::pair<std::string, std::string> faults[] = {
        {"", "line 1, column 1: expected `schedule`, the text ends"},
        {"# nothing\n\n", "line 1, column 1: expected `schedule`, the text ends"},
        {"block channel 0", "line 1, column 1: expected `schedule`, found `block`"},
        {"schedule", "line 1, column 9: expected the algorithm's name, the line ends"},
        {"schedule x all_gathr",
         "line 1, column 12: expected a collective (there are all_reduce broadcast reduce all_gather reduce_scatter "
         "all_to_all gather scatter barrier), found `all_gathr`"},
        {"schedule x gather rank 0 of 2 channels 1 chunks 2", "line 1, column 1: the root is -1; it must lie in 0..1"},
        {"schedule x all_reduce rank 0 of 2 root 1 channels 1 chunks 2",
         "line 1, column 1: the root, of which the collective has none, is 1; it must lie in -1..-1"},
        {"schedule x gather rank 0 of 2 root -1 channels 1 chunks 2",
         "line 1, column 36: expected a rank; a collective without root leaves it out"},
        {"schedule x all_gather rank 0 of 2 channels 1 chunks 3",
         "line 1, column 1: 3 chunks cannot be divided equally among 2 parts; the number must be a multiple"},
        {"schedule x all_reduce rank 0 of 1 channels 1 chunks 2\nblock channel 0\ncopy input[0] -> output into 1",
         "line 3, column 1: it moves a chunk to another's place, where contributions to each are added up"},
        {"schedule x all_to_all rank 0 of 1 channels 1 chunks 2\nblock channel 0\ncopy input[0 count 2] -> output into "
         "1",
         "line 3, column 1: it names a chunk for its targets, which a copy of one chunk does only"},
        {"schedule x all_reduce rank one", "line 1, column 28: expected a rank, found `one`"},
        {"schedule x all_reduce rank 99999999999", "line 1, column 28: a rank is out of range"},
        {"schedule x all_reduce rank 4 of 4 channels 1 chunks 1",
         "line 1, column 1: the rank is 4; it must lie in 0..3"},
        {"schedule x all_reduce rank 0 of 4 channels 1 chunks 1 fast",
         "line 1, column 55: expected `tiles`, `span`, `fifo`, `scratch`, `wide`, `bytes`, `board` or the line's end, "
         "found "
         "`fast`"},
        {"schedule x all_reduce rank 0 of 4 channels 1 chunks 1 scratch -2",
         "line 1, column 1: the number of cells is -2; it must lie in 0..65536"},
        {block + "  copy scratch[0 at -1] -> output",
         "line 3, column 21: expected a cell; scratch without cells has none"},
        {header + "send input[0]", "line 2, column 1: expected `block`, found `send`"},
        {header + "block channel 1", "line 2, column 1: the channel is 1; it must lie in 0..0"},
        {header + "block channel 0 source -1",
         "line 2, column 24: expected a rank; a block without source leaves it out"},
        {header + "block channel 0 target 0", "line 2, column 1: the target is the rank itself"},
        {block + "  sned input[0]",
         "line 3, column 3: expected `schedule`, `block` or an instruction (there are send recv recv_copy_send "
         "recv_reduce_send "
         "recv_reduce_copy recv_reduce_copy_send copy add reduce nop post wait one_shot two_shot), found `sned`"},
        {block + "  1 send input[0]", "line 3, column 3: this is step 0 of its block, found `1`"},
        {block + "  send inptu[0]",
         "line 3, column 8: expected input, output, slot, scratch, inputs or either, found `inptu`"},
        {block + "  send input[4]", "line 3, column 1: the chunk can be 4; it must lie in 0..3"},
        {block + "  send input[(0 * i) mod 4]", "line 3, column 17: expected `+` or `-`, found `*`"},
        {block + "  send input[(0 + i) mod 0]", "line 3, column 1: the chunk moves modulo 0; a modulus is at least 1"},
        {block + "  send input[0] -> output", "line 3, column 1: it has targets, but writes none"},
        {block + "  recv [0]", "line 3, column 1: it has no target"},
        {block + "  recv [0] -> elsewhere",
         "line 3, column 15: expected output, slot, scratch or outputs, found `elsewhere`"},
        {block + "  recv [0] -> input", "line 3, column 1: it cannot write there"},
        {block + "  recv [0] -> output finish", "line 3, column 1: it finishes, but makes nothing new"},
        {block + "  recv [0] -> output repeat 0",
         "line 3, column 1: the number of iterations is 0; it must lie in 1..16777216"},
        {block + "  recv [0] -> output after 0.0",
         "line 3, column 1: it runs after a step of its own block, whose order is fixed"},
        {block + "  recv [0] -> output after 1.0", "line 3, column 1: it runs after block 1, which does not exist"},
        {block + "  post entry",
         "line 3, column 1: it uses the flag block, but the header of the schedule does not contain `board`"},
        {"schedule x all_reduce rank 0 of 2 channels 1 chunks 1 board\nblock channel 0\n  one_shot input[0] -> output "
         "finish\n"
         "  nop",
         "line 3, column 1: it is fused: it is all that a rank does"},
        {block + "  recv [0] -> output \x01\xff",
         "line 3, column 22: expected `into`, `left`, `finish`, `repeat`, `tile`, `after` or the line's end, found "
         "`?`"},
        {block + "block channel 0 source 3", "line 3, column 1: a second block receives from rank 3 on channel 0"},
        {header + "block channel 0\n  send input[0]", "line 3, column 1: it sends, but its block has no target"},
    };
    for (const auto& [text, sentence] : faults) {
        INFO(text);
        const auto schedule = read_text(text);
        REQUIRE(!schedule.ok());
        CHECK(schedule.status().code() == weftInvalidArgument);
        CHECK(schedule.status().sentence() == sentence);
    }
}

TEST_CASE("a text of several schedules is not taken for one", "[schedule]") {
    const std::string text =
        "schedule x all_reduce rank 0 of 2 channels 1 chunks 1\nschedule x all_reduce rank 1 of 2 channels 1 chunks "
        "1\n";
    CHECK_ERROR(read_text(text), "file.syntax");
    REQUIRE(read_texts(text).ok());
    CHECK(read_texts(text)->size() == 2);
}

TEST_CASE("a text with random faults never breaks the reader, and a text that is read is valid", "[schedule]") {
    std::mt19937 random(seed());
    std::vector<std::string> texts;
    for (const Algorithm& row : registry::algorithms())
        for (const Case& one : cases_of(row, 2, 4)) texts.push_back(write_text(schedule_of(one, 4, 1)));
    texts.push_back(write_text(two_block_ring(4, 2)));
    const std::string pieces[] = {"-1",         "2147483647", "99999999999999999999",
                                  "(",          ")",          "[",
                                  "]",          "->",         "-",
                                  "+",          " i ",        " mod ",
                                  "\n",         "#",          "\0",
                                  "\xff",       " finish",    " repeat 16777216",
                                  " after 0.0", " tile 1",    "schedule ",
                                  "block ",     "slot",       "."};
    int read_well = 0;
    for (int round = 0; round < (sanitized ? 5000 : 50'000); ++round) {
        std::string text = texts[random() % texts.size()];
        for (int faults = int(random() % 4) + 1; faults > 0 && !text.empty(); --faults) {
            const size_t place = random() % text.size(), length = random() % 8;
            switch (random() % 5) {
                case 0: text[place] = char(random()); break;
                case 1: text.erase(place, length); break;
                case 2: text.insert(place, pieces[random() % std::size(pieces)]); break;
                case 3: text.insert(place, text.substr(random() % text.size(), 2 * length)); break;
                case 4: text[place] = text[random() % text.size()]; break;
            }
        }
        INFO("seed " << seed() << ", text:\n" << text);
        const auto schedules = read_texts(text);
        if (!schedules) {
            CHECK(schedules.status().sentence().find("line ") == 0);
            continue;
        }
        ++read_well;
        for (const Schedule& schedule : *schedules) REQUIRE(validate(schedule).ok());
        REQUIRE(*read_texts(write_text(*schedules)) == *schedules);
    }
    CHECK(read_well > 0);
}
