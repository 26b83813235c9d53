// large_files_test.cpp: enormous schedules and MSCCL files: hundreds of thousands of steps, lines of megabytes, numbers
// beyond all range, short texts with very many steps.
// The command `weft schedule check` proves the right ones and refuses the rest with a short error, in little memory.
// A program reads WEFT_ALGO_FILES in the same way.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct LargeFile : Folder {
    explicit LargeFile(const std::string& text) { std::ofstream(path / "file", std::ios::binary) << text; }
    std::string name() const { return path / "file"; }
    // In a gigabyte and a half, more than what stands here takes; a sanitizer takes more by itself.
    ProcessResult check(int most_kib = 1'500'000) const {
        const std::string limit = small() ? "" : "ulimit -v " + std::to_string(most_kib) + "; ";
        return run({"sh", "-c", limit + "exec " WEFT_COMMAND " schedule check " + name()});
    }
    void check_refused(const std::string& reason) const {
        const ProcessResult outcome = check();
        INFO(outcome.output << outcome.error.substr(0, 2000));
        CHECK(outcome.status == 1);
        CHECK(outcome.error.find("weft schedule: ") == 0);
        CHECK(contains(outcome.error, reason));
        CHECK(outcome.error.size() < 1000);
    }
    void check_proved() const {
        const ProcessResult outcome = check();
        INFO(outcome.error.substr(0, 2000));
        CHECK(outcome.status == 0);
        CHECK(contains(outcome.output, ": proved: "));
    }
};

const int many = small() ? 20'000 : 200'000;

// The root sends each chunk by a step of its own.
std::string many_steps(int chunks) {
    const std::string header = " of 2 root 0 channels 1 chunks " + std::to_string(chunks) + " fifo 2\n";
    std::string text = "schedule large broadcast rank 0" + header + "block channel 0 target 1\n";
    for (int chunk = 0; chunk < chunks; ++chunk) text += "send input[" + std::to_string(chunk) + "]\n";
    text += "block channel 0\ncopy input[0 count " + std::to_string(chunks) + "] -> output\n";
    text += "schedule large broadcast rank 1" + header + "block channel 0 source 0\n";
    for (int chunk = 0; chunk < chunks; ++chunk) text += "recv [" + std::to_string(chunk) + "] -> output\n";
    return text;
}

std::string many_elements(int chunks) {
    const std::string number = std::to_string(chunks);
    std::string text = "<algo name=\"large\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"" + number +
                       "\" ngpus=\"2\" coll=\"broadcast\" inplace=\"1\">\n";
    for (const bool root : {true, false}) {
        text += std::string("<gpu id=\"") + (root ? "0" : "1") + "\" i_chunks=\"" + number + "\" o_chunks=\"" + number +
                "\" s_chunks=\"0\"><tb id=\"0\" send=\"" + (root ? "1" : "-1") + "\" recv=\"" + (root ? "-1" : "0") +
                "\" chan=\"0\">\n";
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const std::string place = std::to_string(chunk);
            text += "<step s=\"" + place + "\" type=\"" + (root ? "s" : "r") + "\" srcbuf=\"i\" srcoff=\"" + place +
                    "\" dstbuf=\"i\" dstoff=\"" + place + "\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n";
        }
        text += "</tb></gpu>\n";
    }
    return text + "</algo>\n";
}

// A million chunks in each of so many messages, all of which may be sent before one is received.
std::string large_messages(int messages) {
    const std::string of = " of 2 root 0 channels 1 chunks 1048576 span 1048576 fifo 256\nblock channel 0",
                      repeat = " repeat " + std::to_string(messages);
    return "schedule large broadcast rank 0" + of + " target 1\nsend input[0 count 1048576]" + repeat +
           "\nblock channel 0\ncopy input[0 count 1048576] -> output\nschedule large broadcast rank 1" + of +
           " source 0\nrecv [0 count 1048576] -> output" + repeat + "\n";
}

// The last place where `old` stands.
std::string changed_last(std::string text, const std::string& old, const std::string& now) {
    const size_t place = text.rfind(old);
    REQUIRE(place != text.npos);
    return text.replace(place, old.size(), now);
}

const std::string letters(size_t(8) << 20, 'a');
const std::string header = "schedule large all_reduce rank 0 of 1 channels 1 chunks 1\n";

}  // namespace

TEST_CASE("a schedule of hundreds of thousands of steps is proved, or refused for its last one", "[large]") {
    const std::string text = many_steps(many);
    LargeFile(text).check_proved();
    const std::string last = "recv [" + std::to_string(many - 1) + "]";
    LargeFile(changed_last(text, last, "recv [0]"))
        .check_refused("rank 1, block 0, step " + std::to_string(many - 1) +
                       " (recv [0] -> output): it receives chunk ");
    LargeFile(changed_last(text, last + " -> output\n", ""))
        .check_refused("it receives what rank 0 sent for another tile");
    LargeFile(text.substr(0, text.size() - 10)).check_refused("column ");
    LargeFile(changed_last(text, last, "recv [2147483648]")).check_refused("a chunk is out of range");
}

TEST_CASE("an MSCCL file of hundreds of thousands of steps is proved, or refused for its last one", "[large]") {
    const std::string text = many_elements(many / 2);
    LargeFile(text).check_proved();
    const std::string last = "dstoff=\"" + std::to_string(many / 2 - 1) + "\"";
    LargeFile(changed_last(text, last, "dstoff=\"0\"")).check_refused("rank 1");
    LargeFile(changed_last(text, last, "dstoff=\"2147483648\"")).check_refused("dstoff of <step> is `2147483648`");
    LargeFile(text.substr(0, text.size() - 100)).check_refused("this is not XML");
}

TEST_CASE("a line of megabytes is refused with a short sentence", "[large]") {
    LargeFile("schedule " + letters + " all_reduce rank 0 of 1 channels 1 chunks 1\n")
        .check_refused("the name of an algorithm has 1 to 256 characters");
    LargeFile("schedule large " + letters).check_refused("expected a collective");
    LargeFile(header + "block channel 0\n" + letters).check_refused("expected `schedule`, `block` or an instruction");
    LargeFile(header + "block channel 1" + std::string(letters.size(), '0')).check_refused("is out of range");
    std::string board = "schedule large all_reduce rank 0 of 1 channels 1 chunks 1 board";
    for (size_t i = 0; i < letters.size() / 2; ++i) board += " 0";
    LargeFile(board).check_refused("line 1, column 1: ");
    LargeFile("<" + letters + "/>").check_refused("expected <algo>, found <aaa");
    const std::string text = many_elements(2);
    LargeFile(changed_last(text, "type=\"r\"", "type=\"" + letters + "\"")).check_refused("; there are s, r, rcs");
    LargeFile(changed_last(text, "cnt=\"1\"", "cnt=\"" + letters + "\"")).check_refused("which is not a number");
    LargeFile(changed_last(text, "coll=\"broadcast\"", "coll=\"" + letters + "\"")).check_refused("; there are all");
    LargeFile(changed_last(text, "</algo>", letters)).check_refused("this is not XML");
    // A name has a limit. A comment may be as long as it likes.
    LargeFile(changed_last(text, "name=\"large\"", "name=\"" + letters + "\"")).check_refused("at most 250 are read");
    LargeFile("# " + letters + "\n" + many_steps(2)).check_proved();
}

TEST_CASE("numbers out of range are refused with their place", "[large]") {
    for (const std::string number : {"2147483647", "2147483648", "4294967296", "18446744073709551616"}) {
        INFO(number);
        for (const char* what : {"ranks", "channels", "chunks"}) {
            const std::string one = std::string(what) == "ranks" ? "of 1" : std::string(what) + " 1";
            LargeFile(changed_last(header, one, one.substr(0, one.size() - 1) + number))
                .check_refused(std::string("the number of ") + what + " is ");
        }
        LargeFile(header + "block channel 0\ncopy input[0] -> output repeat " + number)
            .check_refused("the number of iterations is ");
        LargeFile(header + "block channel 0\ncopy input[0 count " + number + "] -> output").check_refused("chunks");
        for (const char* attribute : {"ngpus=\"2\"", "nchunksperloop=\"2\"", "cnt=\"1\""}) {
            const std::string old = attribute, name = old.substr(0, old.find('='));
            LargeFile(changed_last(many_elements(2), old, name + "=\"" + number + "\"")).check_refused(name + " of <");
        }
    }
}

TEST_CASE("a short text that means very much is refused", "[large]") {
    std::string repeated = header + "block channel 0\n";
    for (int step = 0; step < 100; ++step) repeated += "copy input[0] -> output repeat 16777216\n";
    LargeFile(repeated).check_refused("the schedules have too many steps to check");
    LargeFile(large_messages(28)).check_refused("chunks are in flight at once, which is too many to check");
}

TEST_CASE("a lack of memory is an error with a sentence", "[large]") {
    if (small()) return;
    const ProcessResult outcome = LargeFile(large_messages(14)).check(400'000);
    CHECK(outcome.status == 1);
    CHECK(outcome.error == "weft: out of memory\n");
}

TEST_CASE("a file of hundreds of megabytes is not read to its end", "[large]") {
    const LargeFile file("");
    REQUIRE(truncate(file.name().c_str(), off_t(40) << 30) == 0);  // holes, which take no room
    file.check_refused("is larger than 256 MiB");
    // By a program too, here by what asks for its choice.
    const ProcessResult outcome =
        run({"env", "WEFT_ALGO_FILES=" + file.name(), WEFT_COMMAND, "info", "explain", "1M", "-n", "2"});
    INFO(outcome.output << outcome.error);
    CHECK(outcome.status == 0);  // it does without
    CHECK(contains(outcome.output + outcome.error, file.name() + " is larger than 256 MiB"));
}
