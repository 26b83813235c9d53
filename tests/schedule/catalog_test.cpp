// catalog_test.cpp: a user's algorithms: which files are read, which are refused, and which calls they serve.
#include "src/selector/catalog.hpp"

#include <fstream>

#include "src/checker/checker.hpp"
#include "src/registry.hpp"
#include "src/schedule/expand.hpp"
#include "src/schedule/text.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

namespace {

struct Files : Folder {
    std::string list;
    std::string write(const std::string& name, const std::string& text) {
        const std::string file = path / name;
        std::ofstream(file, std::ios::binary) << text;
        list += (list.empty() ? "" : ":") + file;
        return file;
    }
    Catalog load(int ranks, bool any_order = false) const {
        return Catalog::load(list, ranks, registry::algorithms(), any_order);
    }
    // The reason why ignored files cannot be used.
    std::string refusal(int ranks) const { return load(ranks).faults(); }
};

std::vector<Schedule> mine(const char* algorithm, int ranks, Collective collective = Collective::all_reduce,
                           int root = -1) {
    std::vector<Schedule> all;
    for (int rank = 0; rank < ranks; ++rank) {
        all.push_back(
            registry::find_algorithm(algorithm, collective)->build({.ranks = ranks, .rank = rank}, {.root = root}));
        all.back().algorithm = "mine";
    }
    return all;
}

std::string chosen(const Catalog& catalog, int ranks, size_t bytes, const char* algo = "",
                   std::vector<int32_t> hosts = {}, Collective collective = Collective::all_reduce, int root = -1) {
    Operation operation;
    operation.collective = collective;
    operation.type = weftUint8;
    operation.op = weftSum;
    operation.count = bytes;
    operation.root = root;
    const auto choice =
        select(operation, {ranks, 0, std::move(hosts)}, host_link_costs(ranks, 2), {algo, 0}, catalog.rows());
    return choice ? choice->algorithm->name : choice.status().sentence();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an algorithm for another number of ranks is reported with its file", "[catalog]") {
    Files files;
    const std::string file = files.write("mine.txt", write_text(mine("ring", 4)));
    const auto here = files.load(4), elsewhere = files.load(5);
    CHECK(here.left_out().empty());
    CHECK(elsewhere.of_users().empty());
    REQUIRE(elsewhere.left_out().size() == 1);
    CHECK(!elsewhere.left_out()[0].faulty);
    CHECK(elsewhere.left_out()[0].message ==
          file + ": mine for all_reduce is for 4 ranks, this communicator has 5: left out");
}

TEST_CASE("the default of a missing line in a file is reported", "[catalog]") {
    Files files;
    const std::string rest =
        " name=\"mine\" ngpus=\"1\" nchunksperloop=\"1\" proto=\"Simple\" inplace=\"1\">"
        "<gpu id=\"0\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\"></gpu></algo>";
    files.write("said.xml", "<algo coll=\"allreduce\"" + rest);
    CHECK(files.load(1).assumptions().empty());
    const std::string file = files.write("unsaid.xml", "<algo" + rest);
    const Catalog catalog = files.load(1);
    CHECK(catalog.of_users().size() == 2);
    REQUIRE(catalog.assumptions().size() == 1);
    CHECK(contains(catalog.assumptions()[0], file));
}

TEST_CASE("a user's algorithm serves the messages, ranks and root that its file says", "[catalog]") {
    Files files;
    std::vector<Schedule> ring = mine("ring", 4), tree = mine("binomial_tree", 4, Collective::broadcast, 2);
    for (Schedule& schedule : ring) schedule.least_bytes = 1000, schedule.most_bytes = 2000;
    std::swap(ring[0], ring[3]);  // in any order
    files.write("both.txt", write_text(ring) + "\n" + write_text(tree));
    const auto catalog = files.load(4);
    CHECK(catalog.of_users().size() == 2);
    CHECK(chosen(catalog, 4, 1000) == "mine");
    CHECK(chosen(catalog, 4, 2000) == "mine");
    CHECK(chosen(catalog, 4, 999) != "mine");
    CHECK(chosen(catalog, 4, 2001) != "mine");
    CHECK(chosen(catalog, 5, 1000) != "mine");
    CHECK(chosen(catalog, 4, 1000, "^mine") != "mine");
    CHECK(chosen(catalog, 4, 1000, "two_shot") == "two_shot");
    CHECK(contains(chosen(catalog, 4, 10, "mine"), "mine: is for 1000 to 2000 bytes"));
    CHECK(chosen(catalog, 4, 10, "", {}, Collective::broadcast, 2) == "mine");
    CHECK(chosen(catalog, 4, 10, "", {}, Collective::broadcast, 1) != "mine");
    for (int rank = 0; rank < 4; ++rank)
        CHECK(catalog.of_users()[0].schedule({.ranks = 4, .rank = rank}, {}).rank == rank);
    CHECK(files.load(8).of_users().empty());
    CHECK(files.load(0).of_users().size() == 2);  // to be listed
}

TEST_CASE("a user's flag block of all ranks is for one host", "[catalog]") {
    Files files;
    files.write("board.txt", write_text(mine("one_shot", 4)));
    const auto catalog = files.load(4);
    CHECK(chosen(catalog, 4, 100) == "mine");
    CHECK(chosen(catalog, 4, 100, "", {0, 0, 1, 1}) != "mine");
}

TEST_CASE("wrong files are refused with place and reason", "[catalog]") {
    Files files;
    SECTION("missing") {
        files.list = "/nowhere/at/all";
        CHECK(contains(files.refusal(2), "/nowhere/at/all could not be read: No such file"));
    }
    SECTION("a folder") {
        files.list = files.path;
        CHECK(contains(files.refusal(2), " could not be read: "));
    }
    SECTION("empty") {
        const std::string file = files.write("empty.txt", "");
        CHECK(files.refusal(2) == file + ": line 1, column 1: expected `schedule`, the text ends: left out");
    }
    SECTION("truncated") {
        const std::string text = write_text(mine("ring", 3));
        const std::string file = files.write("cut.txt", text.substr(0, text.rfind("schedule")));
        CHECK(contains(files.refusal(3), file + ": mine for all_reduce is wrong: rank 0 is one of 3 ranks, but "
                                                "there are 2 schedules"));
    }
    SECTION("a wrong sum, found whatever else is right") {
        files.write("right.txt", write_text(mine("ring", 3)));
        std::vector<Schedule> wrong = mine("ring", 3);
        for (Schedule& schedule : wrong) schedule.algorithm = "wrong";
        auto& chunk = wrong[1].blocks[0].instructions[1].chunk;
        chunk.base = (chunk.base + 1) % 3;
        files.write("wrong.txt", write_text(wrong));
        CHECK(contains(files.refusal(3), "wrong.txt: wrong for all_reduce is wrong: operation 0, rank "));
    }
    SECTION("one that waits in a circle") {
        std::vector<Schedule> circle = mine("ring", 3);
        for (Schedule& schedule : circle) {
            auto& steps = schedule.blocks[0].instructions;
            std::rotate(steps.begin(), steps.begin() + 1, steps.end());
        }
        files.write("circle.txt", write_text(circle));
        CHECK(contains(files.refusal(3), "circle.txt: mine for all_reduce is wrong: "));
    }
    SECTION("a name of Weft's own") {
        std::vector<Schedule> ring = mine("ring", 3);
        for (Schedule& schedule : ring) schedule.algorithm = "two_shot";
        files.write("name.txt", write_text(ring));
        CHECK(contains(files.refusal(5),
                       "two_shot for all_reduce has the name of a built-in algorithm; choose another name"));
    }
    SECTION("ranks without end") {
        files.write("many.txt", "schedule mine all_reduce rank 0 of 2000000000 channels 1 chunks 1\n");
        CHECK(contains(files.refusal(2), "the number of ranks is 2000000000; it must lie in 1..1048576"));
    }
    SECTION("a range that is none") {
        files.write("range.txt",
                    "schedule mine all_reduce rank 0 of 1 channels 1 chunks 1 bytes 10 to 9\nblock channel 0\n");
        CHECK(contains(files.refusal(1), "the largest number of bytes is 9; it must lie in 10.."));
    }
}

TEST_CASE("different files have different digests, and no files have none", "[catalog]") {
    Files one, other, none;
    one.write("a.txt", write_text(mine("ring", 3)));
    other.write("a.txt", write_text(mine("ring", 3)) + "\n");
    CHECK(none.load(3).digest() == 0);
    CHECK(one.load(3).digest() == one.load(5).digest());
    CHECK(one.load(3).digest() != other.load(3).digest());
}

TEST_CASE("a file that cannot be used is left out, and the others serve", "[catalog]") {
    Files files;
    std::vector<Schedule> broken = mine("ring", 3);
    for (Schedule& schedule : broken) schedule.algorithm = "broken";
    broken[0].blocks[0].instructions.pop_back();
    files.write("broken.txt", write_text(broken));
    files.list += ":/nowhere/at/all";
    const std::string good = files.write("good.txt", write_text(mine("ring", 3)));
    const Catalog catalog = files.load(3);
    CHECK(catalog.of_users().size() == 1);
    CHECK(chosen(catalog, 3, 100) == "mine");
    REQUIRE(catalog.left_out().size() == 2);
    CHECK((catalog.left_out()[0].faulty && catalog.left_out()[1].faulty));
    CHECK(contains(catalog.left_out()[0].message, "broken.txt"));
    CHECK(contains(catalog.left_out()[1].message, "/nowhere/at/all"));
    // A job that asks for it by name gets the reason; other jobs go on without it.
    CHECK(catalog.check("WEFT_ALGO", "").ok());
    CHECK(catalog.check("WEFT_ALGO", "^broken").ok());
    CHECK(catalog.check("WEFT_ALGO", "mine,ring").ok());
    for (const char* algo : {"broken", "mine,broken", "all_reduce@1K-:broken", "unread", "unread,mine"}) {
        INFO(algo);
        CHECK(catalog.check("WEFT_ALGO", algo).code() == weftInvalidArgument);
        CHECK(contains(catalog.check("WEFT_ALGO", algo).sentence(), "/nowhere/at/all") == !contains(algo, "broken"));
        CHECK(contains(catalog.check("WEFT_ALGO", algo).sentence(), "broken.txt"));
    }
    // For other numbers of ranks, for which it is not proved, it does not matter.
    CHECK(files.load(4).check("WEFT_ALGO", "broken").ok());
}

TEST_CASE("unreadable files do not count when ranks compare their files", "[catalog]") {
    Files files, gone, rubbish;
    const std::string text = write_text(mine("ring", 3));
    files.write("a.txt", text);
    gone.list = "/nowhere/at/all";
    gone.write("a.txt", text);
    rubbish.write("rubbish.txt", "schedule of nothing");
    CHECK(rubbish.load(3).digest() == 0);
    rubbish.write("a.txt", text);
    CHECK(gone.load(3).digest() == files.load(3).digest());
    CHECK(rubbish.load(3).digest() == files.load(3).digest());
}

TEST_CASE("sums in another order on each rank serve if any order will do", "[catalog]") {
    Files files;
    // Each rank adds received data to its own and cannot use another order; the text states it.
    std::string text;
    for (int rank = 0; rank < 2; ++rank)
        text += fmt::format(
            "schedule swapped all_reduce rank {} of 2 channels 1 chunks 1 fifo 2\nblock channel 0 source {} target {}\n"
            "  send input[0]\n  recv_reduce_copy input[0] -> output left finish\n",
            rank, 1 - rank, 1 - rank);
    const std::string file = files.write("swapped.txt", text);
    CHECK(contains(files.refusal(2), file));
    CHECK(contains(files.refusal(2), "WEFT_ALGO_FILES_ORDER"));
    CHECK(chosen(files.load(2), 2, 100) != "swapped");
    const Catalog any = files.load(2, true);
    CHECK(any.faults().empty());
    CHECK(any.differing().size() == 1);
    CHECK(chosen(any, 2, 100) == "swapped");
    CHECK(any.of_users()[0].sums == Sums::as_they_come);
}

TEST_CASE("the expansion of a fused instruction is proved, and not run", "[catalog]") {
    Files files;
    std::vector<Schedule> all = mine("two_shot", 3);
    const DirectMode direct{{true, true, true}, true};
    for (Schedule& schedule : all) schedule = expand(schedule, direct);
    CHECK(check_set(all, direct).ok());
    files.write("direct.txt", write_text(all));
    CHECK(contains(files.refusal(3), "inputs, outputs and either stand in the expansions of fused instructions"));
}

}  // namespace weft::internal::test
