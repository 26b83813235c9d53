// MSCCL files of tests/schedules/msccl/. Right ones are proved in every way they can run; the reader or the checker
// refuses wrong ones, with the error that their first line expects.
#include "src/msccl/msccl.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "src/checker/checker.hpp"
#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static const std::string folder = std::string(WEFT_SCHEDULES) + "/msccl/";

static std::string file_text(const std::string& name) {
    std::ifstream file(folder + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

static std::vector<std::string> names_in(const std::string& below) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder + below))
        if (entry.path().extension() == ".xml") names.push_back(below + entry.path().filename().string());
    return names;
}

static Status verdict(const std::string& xml, bool any_order = false) {
    auto file = read_schedules(xml, any_order);
    return file ? file->check(file->schedules, {}, {.any_order = any_order}, nullptr) : file.take_status();
}

// The text with its only `old` replaced.
static std::string changed(std::string text, const std::string& old, const std::string& now) {
    const size_t place = text.find(old);
    REQUIRE(place != text.npos);
    return text.replace(place, old.size(), now);
}

TEST_CASE("a right MSCCL file is proved in every way it can run", "[schedule]") {
    const auto names = names_in("");
    CHECK(names.size() >= 10);
    for (const std::string& name : names) {
        const auto program = read_msccl(file_text(name));
        INFO(name << ": " << program.status().sentence());
        REQUIRE(program.ok());
        Proved proved;
        const Status status = check_set(program->schedules, {}, {}, &proved);
        INFO(status.sentence());
        CHECK(status.ok());
        CHECK(proved.steps > 0);
        // In the text form it is the same.
        const auto read = read_texts(write_text(program->schedules));
        REQUIRE(read.ok());
        CHECK(*read == program->schedules);
    }
}

TEST_CASE("a wrong MSCCL file is refused with place and reason", "[schedule]") {
    const auto names = names_in("wrong/");
    CHECK(names.size() >= 10);
    for (const std::string& name : names) {
        const std::string text = file_text(name), begin = "<!-- expect: ";
        REQUIRE(text.find(begin) == 0);
        const std::string expected = text.substr(begin.size(), text.find(" -->") - begin.size());
        const Status status = verdict(text);
        INFO(name << "\n" << status.sentence());
        CHECK(!expected.empty());
        CHECK_EXPECTED(status, expected);
    }
}

TEST_CASE("an MSCCL ring reads as the same ring that is written in C++", "[schedule]") {
    const auto program = read_msccl(file_text("ring_all_reduce_3_out_of_place.xml"));
    REQUIRE(program.ok());
    CHECK(program->name == "ring_3");
    CHECK(program->collective == Collective::all_reduce);
    CHECK(program->root == -1);
    CHECK(program->min_bytes == 0);
    CHECK(program->max_bytes == SIZE_MAX);
    CHECK(write_text(program->schedules[1]) ==
          "schedule ring_3 all_reduce rank 1 of 3 channels 1 chunks 3 fifo 2\n"
          "block channel 0 source 0 target 2\n"
          "  0 send input[0]\n"
          "  1 recv_reduce_send input[2]\n"
          "  2 recv_reduce_copy_send input[1] -> output finish\n"
          "  3 recv_copy_send [0] -> output\n"
          "  4 recv [2] -> output\n");
}

TEST_CASE("a chunk in another one's place is in a cell of scratch, and tiles take turns there", "[schedule]") {
    const auto program = read_msccl(file_text("all_pairs_all_reduce_4.xml"));
    REQUIRE(program.ok());
    INFO(write_text(program->schedules[1]));
    CHECK(write_text(program->schedules[1]) ==
          "schedule all_pairs_4 all_reduce rank 1 of 4 channels 1 chunks 4 fifo 2 scratch 3\n"
          "block channel 0 source 2 target 2\n"
          "  0 send input[2]\n"
          "  1 nop after 4.3 ago 1\n"
          "  2 recv [1] -> scratch at 0\n"
          "  3 send output[1] after 3.4\n"
          "  4 recv [2] -> output\n"
          "block channel 0 source 3 target 3\n"
          "  0 send input[3]\n"
          "  1 nop after 4.3 ago 1\n"
          "  2 recv [1] -> scratch at 1\n"
          "  3 send output[1] after 3.4\n"
          "  4 recv [3] -> output\n"
          "block channel 0 source 0 target 0\n"
          "  0 send input[0]\n"
          "  1 nop after 4.3 ago 1\n"
          "  2 recv [1] -> scratch at 2\n"
          "  3 send output[1] after 3.4\n"
          "  4 recv [0] -> output\n"
          "block channel 0\n"
          "  0 nop after 4.3 ago 1\n"
          "  1 copy input[1] -> output after 0.2\n"
          "  2 add scratch[1 at 0] -> output\n"
          "  3 add scratch[1 at 1] -> output after 1.2\n"
          "  4 add scratch[1 at 2] -> output left finish after 2.2\n"
          "block channel 0\n"
          "  0 nop after 0.2\n"
          "  1 nop after 1.2\n"
          "  2 nop after 2.2\n"
          "  3 nop after 3.4\n");
}

TEST_CASE("several chunks side by side are one message on both ends, others travel one by one", "[schedule]") {
    const auto halving = read_msccl(file_text("halving_doubling_all_reduce_8.xml"));
    REQUIRE(halving.ok());
    CHECK(halving->schedules[0].span == 4);
    CHECK(text_of(halving->schedules[0].blocks[0].instructions[0]) == "send input[4 count 4]");
    const auto everybody = read_msccl(file_text("everybody_sends_all_3.xml"));
    REQUIRE(everybody.ok());
    CHECK(everybody->schedules[0].span == 1);
}

TEST_CASE("a program that reads its input after it has written there in place saves it first", "[schedule]") {
    const std::string text = file_text("everybody_sends_all_3.xml");
    const auto saving = read_msccl(text);
    REQUIRE(saving.ok());
    CHECK(saving->schedules[0].scratch == 6);  // four of its own
    CHECK(text_of(saving->schedules[0].blocks[3].instructions[1]) == "copy input[0] -> scratch at 4");
    CHECK(text_of(saving->schedules[0].blocks[1].instructions[2]) == "send scratch[0 at 4] after 0.3");
    const auto ring = read_msccl(file_text("ring_all_reduce_3_out_of_place.xml"));
    CHECK(ring->schedules[0].scratch == 0);
}

TEST_CASE("data that an in-place program does not move is copied out of place", "[schedule]") {
    const auto ring = read_msccl(file_text("ring_all_gather_4.xml"));
    REQUIRE(ring.ok());
    const Schedule& schedule = ring->schedules[1];
    REQUIRE(schedule.blocks.size() == 2);
    REQUIRE(schedule.blocks[1].instructions.size() == 1);
    CHECK(text_of(schedule.blocks[1].instructions[0]) == "copy input[2 count 2] -> output");
    CHECK(text_of(schedule.blocks[0].instructions[0]) == "send input[2 count 2]");
}

TEST_CASE("the FIFO depth is doubled until no sender waits for ever", "[schedule]") {
    const auto deep = read_msccl(file_text("deep_all_reduce_2.xml"));
    REQUIRE(deep.ok());
    CHECK(deep->schedules[0].fifo_depth == 5);
    CHECK_ERROR(check_set(deep->schedules, {}, {.fifo_depth = 4}), "schedule.deadlock");
    const auto ring = read_msccl(file_text("ring_all_reduce_4_channels_2.xml"));
    CHECK(ring->schedules[0].fifo_depth == 2);
}

TEST_CASE("the root is the gpu that only sends, or the one that the file names", "[schedule]") {
    const std::string chain = file_text("chain_broadcast_4.xml");
    CHECK(read_msccl(chain)->root == 1);
    CHECK(read_msccl(changed(chain, "coll=", "root=\"1\" coll="))->root == 1);
    CHECK(!verdict(changed(chain, "coll=", "root=\"2\" coll=")).ok());
}

TEST_CASE("unused attributes are skipped, and a size range is reported", "[schedule]") {
    const std::string ring = file_text("ring_all_reduce_4_channels_2.xml");
    const auto program = read_msccl(changed(ring, " coll=\"allreduce\"",
                                            " redop=\"sum\" nthreads=\"512\" colour=\"red\""
                                            " minBytes=\"1024\" maxBytes=\"65536\""));
    REQUIRE(program.ok());
    CHECK(program->collective == Collective::all_reduce);  // a file that does not say
    CHECK(program->min_bytes == 1024);
    CHECK(program->max_bytes == 65536);
}

TEST_CASE("no maxBytes, or 0, is no limit", "[schedule]") {
    const std::string limited = file_text("all_gather_2_from_8_bytes.xml");
    CHECK(read_msccl(limited)->min_bytes == 8);
    CHECK(read_msccl(limited)->max_bytes == SIZE_MAX);
    CHECK(read_schedules(limited)->schedules[0].most_bytes == INT64_MAX);
    CHECK(read_msccl(changed(limited, " maxBytes=\"0\"", ""))->max_bytes == SIZE_MAX);
    CHECK(read_msccl(changed(limited, "minBytes=\"8\" ", ""))->min_bytes == 0);
    CHECK(read_msccl(changed(limited, "maxBytes=\"0\"", "maxBytes=\"8\""))->max_bytes == 8);
    CHECK(verdict(changed(limited, "maxBytes=\"0\"", "maxBytes=\"7\"")).code() == weftInvalidArgument);
    CHECK(verdict(changed(limited, "maxBytes=\"0\"", "maxBytes=\"-1\"")).code() == weftInvalidArgument);
    CHECK(read_msccl(file_text("all_gather_2_without_limit.xml"))->max_bytes == SIZE_MAX);
}

TEST_CASE("in place a copy of a place onto itself is nothing, and carries its dependencies", "[schedule]") {
    const std::string text = file_text("stays_all_gather_2.xml");
    const auto stays = read_msccl(text);
    REQUIRE(stays.ok());
    CHECK(text_of(stays->schedules[0].blocks[1].instructions[0]) == "nop");
    CHECK(stays->schedules[0].scratch == 0);
    // With a step of the other block behind it, and in a file that is not in place, where it is a copy.
    const std::string depends =
        "<step s=\"0\" type=\"s\" srcbuf=\"o\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" "
        "depid=\"-1\" deps=\"-1\"";
    const auto behind =
        read_msccl(changed(text, depends, changed(depends, "depid=\"-1\" deps=\"-1\"", "depid=\"1\" deps=\"0\"")));
    REQUIRE(behind.ok());
    CHECK(behind->schedules[0].blocks[0].instructions[0].after == Dependency{1, 0, 0});
    CHECK(!verdict(changed(text, "inplace=\"1\"", "inplace=\"0\"")).ok());  // a race of the copy and the send
}

TEST_CASE("steps that sum in another order on each rank are put into rank order, or stay as they are", "[schedule]") {
    const std::string text = file_text("one_pass_all_reduce_3.xml");
    const auto sorted = read_msccl(text), as_written = read_msccl(text, true);
    REQUIRE((sorted.ok() && as_written.ok()));
    CHECK(verdict(text).ok());
    CHECK(verdict(text, true).ok());
    Proved proved;
    CHECK(check_set(as_written->schedules).code() == weftInvalidArgument);
    CHECK(check_set(as_written->schedules, {}, {.any_order = true}, &proved).ok());
    CHECK(proved.orders_differ);
    CHECK(!proved.in_rank_order);
    CHECK(as_written->schedules[2].scratch == 2);
    INFO(write_text(sorted->schedules[2]));
    CHECK(write_text(sorted->schedules[2])
              .find("  3 copy scratch[0 at 0] -> scratch at 2\n"
                    "  4 add scratch[0 at 1] -> scratch at 2\n"
                    "  5 copy input[0] -> output\n"
                    "  6 add scratch[0 at 2] -> output left finish\n") != std::string::npos);
    // The same with other kinds of steps that add, and in other places.
    for (const char* name : {"one_pass_rrc_all_reduce_3_out_of_place.xml", "one_pass_rrc_all_reduce_4.xml",
                             "one_pass_in_scratch_all_reduce_3.xml"}) {
        INFO(name);
        Proved as_it_is;
        CHECK(check_set(read_msccl(file_text(name), true)->schedules, {}, {.any_order = true}, &as_it_is).ok());
        CHECK(as_it_is.orders_differ);
        CHECK(verdict(file_text(name)).ok());
    }
    // A different sum is not taken for another order of the same sum.
    const std::string twice =
        changed(text, "type=\"re\" srcbuf=\"s\" srcoff=\"1\"", "type=\"re\" srcbuf=\"s\" srcoff=\"0\"");
    CHECK(verdict(twice, true).code() == weftInvalidArgument);
    // A file with equal sums on all ranks stays unchanged.
    const std::string ring = file_text("ring_all_reduce_4_channels_2.xml");
    CHECK(read_msccl(ring)->schedules == read_msccl(ring, true)->schedules);
}

TEST_CASE("an MSCCL file without coll is read as an allreduce, and every objection says so", "[schedule]") {
    const std::string ring = file_text("ring_all_reduce_4_channels_2.xml"), gather = file_text("ring_all_gather_4.xml");
    CHECK(verdict(changed(ring, " coll=\"allreduce\"", "")).ok());
    CHECK(verdict(changed(ring, "coll=\"allreduce\"", "coll=\"\"")).ok());
    for (const Status& status :
         {verdict(changed(gather, " coll=\"allgather\"", "")),
          verdict(changed(changed(ring, " coll=\"allreduce\"", ""), "cnt=\"1\"", "cnt=\"2\""))}) {
        INFO(status.sentence());
        CHECK(status.code() == weftInvalidArgument);
        CHECK(status.sentence().find("<algo> has no coll") != std::string::npos);
    }
    CHECK(verdict(changed(ring, "cnt=\"1\"", "cnt=\"2\"")).sentence().find("coll") == std::string::npos);
}

TEST_CASE("names are kept whole, and characters that a name cannot have become _", "[schedule]") {
    const std::string ring = file_text("ring_all_reduce_4_channels_2.xml");
    const auto name = [&](const std::string& text) {
        const auto program = read_msccl(changed(ring, "name=\"ring_4\"", "name=\"" + text + "\""));
        if (!program) return program.status().sentence();
        CHECK(program->schedules[0].algorithm == program->name);
        const auto read = read_texts(write_text(program->schedules));
        CHECK((read && *read == program->schedules));
        return program->name;
    };
    const std::string longest(250, 'n');
    CHECK(name(longest) == longest);
    CHECK(name(longest + "n").find("name has 251 bytes") != std::string::npos);
    CHECK(name("") == "msccl_");
    CHECK(name("1-4 &amp; \xc3\xa4.b") == "msccl_1_4______b");
    CHECK(name("a b") == "a_b");
}

TEST_CASE("a text that is no whole MSCCL file is refused with line and column", "[schedule]") {
    const std::string ring = file_text("ring_all_reduce_4_channels_2.xml");
    const auto sentence = [&](const std::string& old, const std::string& now) {
        return verdict(changed(ring, old, now)).sentence();
    };
    CHECK(read_msccl("").status().sentence() == "line 1, column 1: this is not XML: no element found");
    CHECK(read_msccl("schedule ring").status().sentence() == "line 1, column 1: this is not XML: syntax error");
    CHECK(verdict("<html/>").sentence() == "line 1, column 1: expected <algo>, found <html>");
    CHECK(verdict("<!DOCTYPE algo [<!ENTITY a \"b\">]>\n<algo/>").sentence() ==
          "line 1, column 16: a document type is not read; remove <!DOCTYPE ...>");
    CHECK(verdict("<algo name=\"a\"/>").sentence() == "line 1, column 1: <algo> has no attribute ngpus");
    CHECK(verdict(ring.substr(0, ring.size() / 2)).sentence().find("; <") != std::string::npos);
    CHECK(verdict(ring.substr(0, ring.find("</algo>")))
              .sentence()
              .find("no element found; <algo> is not closed: is the file complete?") != std::string::npos);
    CHECK(sentence("type=\"rrs\"", "type=\"rss\"") ==
          "line 5, column 7: type is `rss`; there are s, r, rcs, rrs, rrc, rrcs, cpy, re and nop");
    CHECK(sentence("coll=\"allreduce\"", "coll=\"custom\"").find("line 1, column 1: coll is `custom`; there are all") ==
          0);
    CHECK(sentence("ngpus=\"4\"", "ngpus=\"5\"") == "line 1, column 1: ngpus is 5, but there is no <gpu id=\"4\">");
    CHECK(sentence("ngpus=\"4\"", "ngpus=\"99999999999999999999\"") ==
          "line 1, column 1: ngpus of <algo> is `99999999999999999999`; it must lie in 1..1048576");
    CHECK(sentence("nchunksperloop=\"8\"", "nchunksperloop=\"1000000000\"") ==
          "line 1, column 1: nchunksperloop of <algo> is `1000000000`; it must lie in 1..16777216");
    CHECK(sentence("nchunksperloop=\"8\"", "nchunksperloop=\"16777216\"") ==
          "line 1, column 1: 16777216 chunks on each of 4 gpus are too many");
    CHECK(sentence("cnt=\"1\"", "cnt=\"many\"") == "line 4, column 7: cnt of <step> is `many`, which is not a number");
    CHECK(sentence("cnt=\"1\"", "cnt=\"0\"") == "line 4, column 7: cnt of <step> is `0`; it must lie in 1..16777216");
    CHECK(sentence(" srcbuf=\"i\"", "") == "line 4, column 7: <step> has no attribute srcbuf");
    CHECK(sentence("srcbuf=\"i\"", "srcbuf=\"q\"") == "line 4, column 7: srcbuf is `q`; there are i, o and s");
    CHECK(sentence("id=\"1\" i_chunks", "id=\"3\" i_chunks") == "line 62, column 3: gpu 3 appears twice");
    CHECK(sentence("tb id=\"1\"", "tb id=\"0\"") == "line 12, column 5: tb 0 of gpu 0 appears twice");
    CHECK(sentence("s=\"1\"", "s=\"7\"") ==
          "line 5, column 7: this is step 1 of tb 0, but s is 7: steps are numbered from 0");
    CHECK(sentence("send=\"1\"", "send=\"0\"") ==
          "line 3, column 5: tb 0 of gpu 0 sends to its own gpu; within a gpu use cpy and re");
    CHECK(sentence("send=\"1\"", "send=\"-1\"") == "line 4, column 7: s sends, but tb 0 of gpu 0 has no send");
    CHECK(sentence("depid=\"-1\"", "depid=\"5\"") ==
          "line 4, column 7: it depends on tb 5, but deps does not say after which step");
    CHECK(sentence("depid=\"-1\" deps=\"-1\"", "depid=\"5\" deps=\"0\"") ==
          "line 4, column 7: it depends on tb 5, which gpu 0 does not have");
    CHECK(sentence("depid=\"-1\" deps=\"-1\"", "depid=\"1\" deps=\"9\"") ==
          "line 4, column 7: it depends on step 9 of tb 1, which has 7 steps");
    CHECK(sentence("depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"3\"") ==
          "line 4, column 7: cyclic dependency: step 0 of tb 0 depends on step 3 of the same tb");
    CHECK(verdict(changed(ring, "coll=", "minBytes=\"10\" maxBytes=\"9\" coll=")).sentence() ==
          "line 1, column 1: minBytes is 10 and maxBytes 9: no message is of that size");
    CHECK(verdict(changed(file_text("ring_all_gather_4.xml"), "nchunksperloop=\"8\"", "nchunksperloop=\"7\""))
              .sentence() == "line 1, column 1: nchunksperloop is 7; allgather on 4 gpus takes a multiple of 4");
}

TEST_CASE("an MSCCL file with any fault is read as valid schedules or refused with an error", "[schedule]") {
    std::mt19937 random(seed());
    int valid = 0, refused = 0;
    for (const std::string& name : names_in("")) {
        const std::string original = file_text(name);
        for (int round = 0; round < (sanitized ? 60 : 400); ++round) {
            std::string text = original;
            if (round % 8 == 0) {
                text.resize(random() % text.size());
            } else {
                for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
                    char& letter = text[random() % text.size()];
                    // Another digit in place of a digit reaches deeper than random bytes.
                    letter = std::isdigit(uint8_t(letter)) ? char('0' + random() % 10) : char(random());
                }
            }
            const auto program = read_msccl(text);
            INFO("seed " << seed() << ", " << name << ", round " << round << ": " << program.status().sentence());
            if (program.ok()) {
                ++valid;
                for (const Schedule& schedule : program->schedules) REQUIRE(validate(schedule).ok());
            } else {
                ++refused;
                REQUIRE(program.status().code() == weftInvalidArgument);
                REQUIRE(program.status().sentence().find("line ") == 0);
            }
        }
    }
    CHECK(valid > 0);
    CHECK(refused > 0);
}
