// `weft schedule`: its output, its files and its exit status.
#include "tests/schedule/command.hpp"
#include "tests/error.hpp"

#include <fstream>
#include <string>
#include <vector>

using namespace weft::internal::test;

namespace {

const std::string golden = std::string(WEFT_SCHEDULES) + "/ring_all_reduce_4.txt";

}  // namespace

TEST_CASE("weft schedule show prints a schedule of all ranks, or of one", "[schedule]") {
    const ProcessResult all = run({"schedule", "show", "ring", "--ranks", "4"});
    CHECK(all.exit_status == 0);
    CHECK(all.out == file_text(golden));
    const ProcessResult one =
        run({"schedule", "show", "two_shot", "--ranks", "3", "--rank", "1", "--expand", "direct"});
    CHECK(one.exit_status == 0);
    CHECK(one.out ==
          "schedule two_shot all_reduce rank 1 of 3 channels 1 chunks 3 board\n"
          "block channel 0\n"
          "  0 post entry\n"
          "  1 wait entry\n"
          "  2 reduce inputs[1] -> outputs finish\n"
          "  3 post done\n"
          "  4 wait done\n");
}

TEST_CASE("weft schedule check proves the output of weft schedule build", "[schedule]") {
    TemporaryFile file;
    CHECK(run({"schedule", "build", "ring", "-n", "4", "-o", file.name}).exit_status == 0);
    CHECK(file_text(file.name) == file_text(golden));
    const ProcessResult proved = run({"schedule", "check", file.name});
    CHECK(proved.exit_status == 0);
    CHECK(proved.out == file.name + ": proved: ring all_reduce on 4 ranks, 1008 steps in all ways it can run\n");
    const ProcessResult refused = run({"schedule", "check", file.name, "--fifo-depth", "1"});
    CHECK(refused.exit_status == 1);
    CHECK_EXPECTED(PrintedError{refused.err},
                   "[algorithm.file] " + file.name + ": deadlock: operation 0, rank 0, block 0, step 1");
}

TEST_CASE("weft schedule knows hosts, and proves schedules with a flag block on each", "[schedule]") {
    TemporaryFile file;
    REQUIRE(run({"schedule", "build", "two_level_tree", "-n", "6", "--hosts", "3", "-o", file.name}).exit_status == 0);
    CHECK(file_text(file.name) == file_text(std::string(WEFT_SCHEDULES) + "/two_level_tree_all_reduce_6_hosts_3.txt"));
    const ProcessResult proved = run({"schedule", "check", file.name});
    INFO(proved.err);
    CHECK(proved.exit_status == 0);
    // A rank may be three tiles ahead: with one slot less it overwrites data that others still read.
    const ProcessResult refused = run({"schedule", "check", file.name, "--board-slots", "3"});
    CHECK(refused.exit_status == 1);
    CHECK_ERROR(PrintedError{refused.err}, "algorithm.file");
}

TEST_CASE("weft schedule lists the existing names when a name is misspelt", "[schedule]") {
    const std::pair<std::vector<std::string>, std::string> mistakes[] = {
        {{"schedule", "show", "rign", "--ranks", "4"},
         "[command.option] `rign` does not exist for all_reduce; the algorithms are one_shot, two_shot, ring, "
         "recursive_doubling"},
        {{"schedule", "show", "two_shot", "--ranks", "4", "--collective", "gather"},
         "[command.option] `two_shot` does not exist for gather; the algorithms are one_shot, binomial_tree, linear"},
        {{"schedule", "show", "ring", "--ranks", "4", "--collective", "all_gathr"},
         "[command.option] `all_gathr` does not exist; the collectives are all_reduce, broadcast"},
        {{"schedule", "show", "ring", "--ranks", "4", "--collective", "reduce", "--root", "4"},
         "[command.option] --root 4"},
        {{"schedule", "show", "two_shot", "--ranks", "4", "--expand", "strait"}, "[command.option] `strait`"},
        {{"schedule", "show", "two_shot", "--ranks", "4", "--expand", "readable=0,7"},
         "[command.option] `7` is not a rank from 0 to 3"},
        {{"schedule", "show", "ring", "--ranks", "4", "--expand", "pipelined=2"},
         "[command.option] ring is not pipelined"},
        {{"schedule", "show", "ring", "--ranks", "4", "--rank", "4"}, "[command.option] --rank 4"},
        {{"schedule", "show", "two_level_ring", "--ranks", "4"}, "[command.option] two_level_ring needs several hosts"},
        {{"schedule", "show", "two_level_ring", "--ranks", "4", "--hosts", "4"},
         "[command.option] needs a host with several ranks"},
        {{"schedule", "show", "one_shot", "--ranks", "4", "--hosts", "2"},
         "[command.option] one_shot needs all ranks on one host"},
        {{"schedule", "show", "ring", "--ranks", "2", "--hosts", "3"},
         "[command.option] 2 ranks do not fit on 3 hosts"},
        {{"schedule", "show", "ring", "--ranks", "0"}, "[] 0 not in range"},
    };
    for (const auto& [arguments, sentence] : mistakes) {
        const ProcessResult outcome = run(arguments);
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
}

TEST_CASE("weft schedule check of a file that cannot be used says which and why", "[schedule]") {
    const ProcessResult missing = run({"schedule", "check", "/nonexistent/ring.txt"});
    CHECK(missing.exit_status == 1);
    CHECK_EXPECTED(PrintedError{missing.err}, "[command.input] /nonexistent/ring.txt");
    TemporaryFile file;
    std::ofstream(file.name) << "schedule ring all_reduce rank 0 of 1 channels 1 chunks 1\nblock chanel 0\n";
    const ProcessResult faulty = run({"schedule", "check", file.name});
    CHECK(faulty.exit_status == 1);
    CHECK_EXPECTED(PrintedError{faulty.err}, "[algorithm.file] " + file.name + ": line 2, column 7: ");
}

TEST_CASE("weft schedule check and convert read MSCCL's XML too", "[schedule]") {
    const std::string ring = std::string(WEFT_SCHEDULES) + "/msccl/ring_all_reduce_3_out_of_place.xml";
    const ProcessResult proved = run({"schedule", "check", ring});
    CHECK(proved.exit_status == 0);
    CHECK(proved.out.find(ring + ": proved: ring_3 all_reduce on 3 ranks, ") == 0);
    const ProcessResult converted = run({"schedule", "convert", ring});
    CHECK(converted.exit_status == 0);
    CHECK(converted.out.find("schedule ring_3 all_reduce rank 0 of 3 channels 1 chunks 3 fifo 2\n"
                             "block channel 0 source 2 target 1\n"
                             "  0 send input[2]\n") == 0);
    TemporaryFile file;
    std::ofstream(file.name) << "  <algo/>\n";
    const ProcessResult faulty = run({"schedule", "check", file.name});
    CHECK(faulty.exit_status == 1);
    CHECK_EXPECTED(PrintedError{faulty.err}, "[algorithm.file] " + file.name + ": line 1, column 3: ");
}

TEST_CASE("weft schedule show takes a file in the place of a name, with the same options", "[schedule]") {
    const std::string folder = std::string(WEFT_SCHEDULES) + "/msccl/",
                      xml = folder + "ring_all_reduce_3_out_of_place.xml", chain = folder + "chain_broadcast_4.xml";
    const ProcessResult converted = run({"schedule", "convert", xml}), shown = run({"schedule", "show", xml});
    CHECK(shown.exit_status == 0);
    CHECK(shown.out == converted.out);
    TemporaryFile text, picture, named;
    std::ofstream(text.name) << converted.out;
    CHECK(run({"schedule", "show", text.name, "-n", "3"}).out == converted.out);
    CHECK(run({"schedule", "show", golden}).out == file_text(golden));
    const ProcessResult one =
        run({"schedule", "show", xml, "--rank", "1", "--collective", "allreduce", "--channels", "1"});
    CHECK(one.out.find("schedule ring_3 all_reduce rank 1 of 3 ") == 0);
    CHECK(one.out.find("rank 2 of 3") == std::string::npos);
    // The picture equals that of the named ring, except for that.
    CHECK(run({"schedule", "show", golden, "--svg", picture.name, "--hosts", "2", "--bytes", "64K"}).exit_status == 0);
    CHECK(run({"schedule", "show", "ring", "-n", "4", "--svg", named.name, "--hosts", "2", "--bytes", "64K"})
              .exit_status == 0);
    CHECK(file_text(picture.name) == file_text(named.name));
    CHECK(run({"schedule", "show", chain, "--svg", picture.name}).exit_status == 0);
    CHECK(run({"schedule", "build", chain, "-o", text.name}).exit_status == 0);
    CHECK(file_text(text.name) == run({"schedule", "convert", chain}).out);
    // Options that do not fit the file, and a name without the options that it needs.
    for (const std::vector<std::string>& options :
         std::vector<std::vector<std::string>>{{chain, "-n", "5"},
                                               {chain, "--collective", "all_reduce"},
                                               {chain, "--root", "2"},
                                               {chain, "-c", "2"},
                                               {chain, "--rank", "4"},
                                               {chain, "--hosts", "5"},
                                               {"ring"},
                                               {chain, "--expand", "strait"}}) {
        std::vector<std::string> arguments = {"schedule", "show"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        INFO(options[0] << " " << options.back());
        CHECK(run(arguments).exit_status == 2);
    }
    CHECK(run({"schedule", "show", "/nonexistent/ring.xml"}).exit_status == 1);
    const std::string wrong = folder + "wrong/double_reduction.xml";
    CHECK(run({"schedule", "show", wrong}).exit_status == 0);  // to be looked at
    CHECK(run({"schedule", "show", wrong, "--svg", picture.name}).exit_status == 1);
}

TEST_CASE("weft schedule check lets ranks sum in different orders if asked to", "[schedule]") {
    TemporaryFile file;
    {
        std::ofstream text(file.name);
        for (int rank = 0; rank < 2; ++rank)
            text << "schedule swapped all_reduce rank " << rank
                 << " of 2 channels 1 chunks 1 fifo 2\nblock channel 0 source " << 1 - rank << " target " << 1 - rank
                 << "\n  send input[0]\n  recv_reduce_copy input[0] -> output left finish\n";
    }
    CHECK(run({"schedule", "check", file.name}).exit_status == 1);
    CHECK(run({"schedule", "check", file.name, "--any-order"}).exit_status == 0);
    TemporaryFile picture;
    for (const bool any_order : {false, true}) {
        std::vector<std::string> drawn = {"schedule", "show", file.name, "--svg", picture.name},
                                 timed = {"schedule", "simulate", file.name};
        for (auto* words : {&drawn, &timed})
            if (any_order) words->push_back("--any-order");
        INFO(any_order);
        CHECK(run(drawn).exit_status == (any_order ? 0 : 1));
        CHECK(run(timed).exit_status == (any_order ? 0 : 1));
    }
    // Sums of MSCCL's files keep their order.
    const std::string xml = std::string(WEFT_SCHEDULES) + "/msccl/one_pass_all_reduce_3.xml";
    const std::string sorted = run({"schedule", "convert", xml}).out,
                      as_it_stands = run({"schedule", "convert", xml, "--any-order"}).out;
    CHECK(sorted != as_it_stands);
    CHECK(run({"schedule", "show", xml, "--any-order"}).out == as_it_stands);
}

TEST_CASE("weft schedule checks every algorithm of a file, and the others choose one", "[schedule]") {
    // Of one name: for short messages, for long ones, and for three ranks.
    const auto ring = [](int ranks, const std::string& bytes) {
        std::string text = run({"schedule", "show", "ring", "-n", std::to_string(ranks)}).out;
        for (size_t at = 0; (at = text.find(" fifo ", at)) != text.npos; at = text.find('\n', at))
            text.insert(text.find('\n', at), bytes);
        return text;
    };
    TemporaryFile file;
    std::ofstream(file.name) << ring(2, " bytes 0 to 1023") << ring(2, " bytes 1024") << ring(3, "");
    const ProcessResult proved = run({"schedule", "check", file.name});
    INFO(proved.out << proved.err);
    CHECK(proved.exit_status == 0);
    CHECK(std::count(proved.out.begin(), proved.out.end(), '\n') == 3);
    CHECK(proved.out.find("ring all_reduce on 2 ranks, 0 to 1023 bytes, ") != proved.out.npos);
    CHECK(proved.out.find("ring all_reduce on 3 ranks, ") != proved.out.npos);
    const ProcessResult refused = run({"schedule", "show", file.name, "-n", "2"});
    CHECK(refused.exit_status == 2);
    CHECK_EXPECTED(PrintedError{refused.err}, "[command.option] --bytes");
    CHECK(run({"schedule", "show", file.name, "-n", "2", "--bytes", "64"}).out == ring(2, " bytes 0 to 1023"));
    CHECK(run({"schedule", "show", file.name, "-n", "2", "--bytes", "1M"}).out == ring(2, " bytes 1024"));
    CHECK_EXPECTED(PrintedError{run({"schedule", "show", "ring", "-n", "2", "--bytes", "1M"}).err},
                   "[command.option] --bytes changes no schedule");
    CHECK(run({"schedule", "simulate", file.name, "-n", "2", "--bytes", "64"}).exit_status == 0);
    // One that is wrong is enough.
    std::ofstream(file.name, std::ios::app)
        << file_text(std::string(WEFT_SCHEDULES) + "/wrong/contribution_missing.txt");
    CHECK(run({"schedule", "check", file.name}).exit_status == 1);
}

TEST_CASE("weft schedule names the missing parts of a file", "[schedule]") {
    std::string xml = file_text(std::string(WEFT_SCHEDULES) + "/msccl/one_pass_all_reduce_3.xml");
    const std::string coll = " coll=\"allreduce\"";
    REQUIRE(xml.find(coll) != std::string::npos);
    xml.erase(xml.find(coll), coll.size());
    TemporaryFile file;
    std::ofstream(file.name) << xml;
    for (const char* command : {"check", "convert", "show", "simulate"}) {
        INFO(command);
        const ProcessResult said = run({"schedule", command, file.name});
        CHECK(said.exit_status == 0);
        CHECK(!said.err.empty());
    }
}
