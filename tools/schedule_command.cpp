#include "tools/schedule_command.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/file.hpp"
#include "src/base/printing.hpp"
#include "src/schedule/checker.hpp"
#include "src/schedule/msccl.hpp"
#include "src/schedule/text.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/schedule_picture.hpp"
#include "tools/simulate_command.hpp"

namespace weft::tools {
namespace {

// Bounds of what one may ask to see: a screenful a rank, a few hundred megabytes at most.
constexpr int ranks_shown_most = 65'536;
constexpr int channels_shown_most = 64;
constexpr int tiles_shown_most = 64;
constexpr uint64_t bytes_drawn_most = 1 << 30;
constexpr size_t schedule_bytes_most = size_t(256) << 20;

struct Request {
    std::string algorithm;
    std::string collective = name_of(Collective::all_reduce);
    int root = 0;
    int ranks = 0;
    int rank = -1;  // all
    int channels = 1;
    int hosts = 1;
    std::string expansion;
    std::string file;
    PictureRequest picture;
    std::string readable;
    CheckOptions options;
};

Result<BoardMode> parse_readable(std::string_view list, int ranks) {
    BoardMode mode;
    mode.readable.assign(ranks, false);
    while (!list.empty()) {
        const std::string_view word = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), word.size() + 1));
        int rank = -1;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), rank);
        if (error != std::errc() || end != word.data() + word.size() || rank < 0 || rank >= ranks)
            return fail(weftInvalidArgument, "`{}` is not a rank; there are 0..{}, as in readable=0,2", word,
                        ranks - 1);
        mode.readable[rank] = true;
    }
    return mode;
}

Result<Schedule> expanded(const Schedule& schedule, const std::string& expansion) {
    const std::string_view text = expansion;
    if (text.empty()) return schedule;
    if (text == "staged") return expand(schedule, {});
    if (text == "direct") return expand(schedule, {std::vector<bool>(schedule.ranks, true), true});
    if (text.substr(0, 9) == "readable=") {
        auto mode = parse_readable(text.substr(9), schedule.ranks);
        if (!mode) return mode.take_status();
        return expand(schedule, *mode);
    }
    if (text.substr(0, 10) == "pipelined=") {
        int tiles = 0;
        const auto [end, error] = std::from_chars(text.data() + 10, text.data() + text.size(), tiles);
        if (error != std::errc() || end != text.data() + text.size() || tiles < 1 || tiles > tiles_shown_most)
            return fail(weftInvalidArgument, "pipelined takes a number of tiles, 1..{}, as in pipelined=4",
                        tiles_shown_most);
        if (!is_two_shot(schedule))
            return fail(weftInvalidArgument, "{} is not pipelined; two_shot is", schedule.algorithm);
        return expand_pipelined(schedule, {}, tiles);
    }
    return fail(weftInvalidArgument,
                "there is no expansion `{}`; there are staged, direct, readable=RANK,... and pipelined=TILES", text);
}

Result<std::vector<Schedule>> make(const Request& request) {
    auto named = algorithm_named(request.algorithm, request.collective);
    if (!named) return named.take_status();
    const Algorithm* row = *named;
    const bool rooted = facts_of(row->collective).rooted;
    if (rooted && request.root >= request.ranks)
        return fail(weftInvalidArgument, "there is no rank {} of {} to be the root; there are 0..{}", request.root,
                    request.ranks, request.ranks - 1);
    if (request.rank >= request.ranks)
        return fail(weftInvalidArgument, "there is no rank {} of {}; there are 0..{}", request.rank, request.ranks,
                    request.ranks - 1);
    if (request.hosts > request.ranks)
        return fail(weftInvalidArgument, "{} ranks cannot be on {} hosts", request.ranks, request.hosts);
    Layout layout = layout_in_blocks(request.ranks, request.hosts);
    if (const char* refusal = row->refusal(layout))
        return fail(weftInvalidArgument, "{} {}: --ranks {} --hosts {}", row->name, refusal, request.ranks,
                    request.hosts);
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < request.ranks; ++rank) {
        if (request.rank >= 0 && rank != request.rank) continue;
        layout.rank = rank;
        auto schedule = expanded(row->build(layout, {.channels = request.channels, .root = rooted ? request.root : -1}),
                                 request.expansion);
        if (!schedule) return schedule.take_status();
        schedules.push_back(std::move(*schedule));
    }
    return schedules;
}

Status draw(const Request& request, const std::vector<Schedule>& schedules) {
    if (request.rank >= 0) return fail(weftInvalidArgument, "a picture is of all ranks: --svg or --rank, not both");
    const auto row = algorithm_named(request.algorithm, request.collective);
    if (!row) return Status(row.status().code(), row.status().sentence());
    PictureRequest picture = request.picture;
    picture.hosts = request.hosts;
    const auto text = picture_of(schedules, **row, picture);
    if (!text) return Status(text.status().code(), text.status().sentence());
    return write_file(picture.file, *text);
}

Status show(const Request& request) {
    auto schedules = make(request);
    if (!schedules) return schedules.take_status();
    if (!request.picture.file.empty()) return draw(request, *schedules);
    print_output("{}", write_text(*schedules));
    return ok();
}

Status build(const Request& request) {
    auto schedules = make(request);
    if (!schedules) return schedules.take_status();
    return write_file(request.file, write_text(*schedules));
}

// Of a text or of MSCCL's XML.
Result<std::vector<Schedule>> read_schedule_file(const std::string& name) {
    const auto text = read_file(name, schedule_bytes_most, Pipes::read);
    if (!text) return Status(text.status().code(), text.status().sentence());
    auto schedules = read_schedules(*text);
    if (!schedules) return fail(weftInvalidUsage, "{}: {}", name, schedules.status().sentence());
    return schedules;
}

Status convert(const Request& request) {
    auto schedules = read_schedule_file(request.file);
    if (!schedules) return schedules.take_status();
    print_output("{}", write_text(*schedules));
    return ok();
}

Status check_file(const Request& request) {
    auto schedules = read_schedule_file(request.file);
    if (!schedules) return schedules.take_status();
    auto mode = parse_readable(request.readable, int(schedules->size()));
    if (!mode) return mode.take_status();
    Proved proved;
    const Status status =
        check_set(*schedules, request.readable.empty() ? BoardMode() : *mode, request.options, &proved);
    if (!status) return fail(weftInvalidUsage, "{}: {}", request.file, status.sentence());
    print_output(
        "{}: proved: {} {} on {} rank{}, {} steps in all ways it can run{}\n", request.file, (*schedules)[0].algorithm,
        name_of((*schedules)[0].collective), schedules->size(), schedules->size() == 1 ? "" : "s", proved.steps,
        facts_of((*schedules)[0].collective).reduces && proved.in_rank_order ? "; it combines in rank order" : "");
    return ok();
}

}  // namespace

void add_schedule_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<Request>();
    CLI::App* command =
        app.add_subcommand("schedule", "Shows, writes, proves and simulates the schedules of algorithms");
    command->require_subcommand(1);
    auto report = [&exit_status](const Status& status) {
        if (!status) print_error("weft schedule: {}\n", status.sentence());
        // The command line's faults are invalid arguments; a file's are not.
        exit_status = status ? 0 : status.code() == weftInvalidArgument ? 2 : 1;
    };
    auto add_algorithm = [request](CLI::App* to) {
        to->add_option("algorithm", request->algorithm, "Its name, as in WEFT_ALGO")->required();
        to->add_option("-n,--ranks", request->ranks, "Ranks of the communicator")
            ->required()
            ->check(CLI::Range(1, ranks_shown_most));
        to->add_option("--hosts", request->hosts,
                       "Hosts that the ranks are on, as many on each as divide evenly, neighbours together")
            ->check(CLI::Range(1, ranks_shown_most))
            ->capture_default_str();
        to->add_option("-c,--channels", request->channels, "Channels")
            ->check(CLI::Range(1, channels_shown_most))
            ->capture_default_str();
        to->add_option("--collective", request->collective, "What it is to do")->capture_default_str();
        to->add_option("--root", request->root, "Of a rooted collective")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
        to->add_option("--expand", request->expansion,
                       "Fused instructions as the elementary ones they stand for: staged, direct, readable=RANK,... or "
                       "pipelined=TILES");
    };
    CLI::App* show_command = command->add_subcommand("show", "Prints schedules: weft schedule show ring --ranks 4");
    add_algorithm(show_command);
    show_command->add_option("-r,--rank", request->rank, "Of this rank only")->check(CLI::NonNegativeNumber);
    CLI::Option* svg =
        show_command->add_option("--svg", request->picture.file, "File to draw them to, as lanes over time, instead");
    show_command
        ->add_option("--host", request->picture.host, "Kind of host whose times are drawn, as `simulate` has them")
        ->capture_default_str()
        ->needs(svg);
    show_command->add_option("-b,--bytes", request->picture.bytes, "Of the largest buffer of the call that is drawn")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(uint64_t(1), bytes_drawn_most))
        ->capture_default_str()
        ->needs(svg);
    show_command->callback([=] { report(show(*request)); });

    CLI::App* build_command = command->add_subcommand(
        "build", "Writes the schedules of all ranks: weft schedule build ring --ranks 4 -o ring.txt");
    add_algorithm(build_command);
    build_command->add_option("-o,--output", request->file, "File to write")->required();
    build_command->callback([=] { report(build(*request)); });

    CLI::App* check_command = command->add_subcommand(
        "check", "Proves the schedules of all ranks in a file, or says what is wrong: weft schedule check ring.txt");
    check_command->add_option("file", request->file, "File to read: schedules as text, or MSCCL's XML")->required();
    check_command->add_option("--readable", request->readable, "Ranks that `either` reads in place, as in 0,2");
    check_command
        ->add_option("--fifo-depth", request->options.fifo_depth,
                     "Slots of each connection, instead of as many as the schedules ask for")
        ->check(CLI::Range(1, 65'536));
    check_command->add_option("--board-slots", request->options.board_slots, "Slots of each rank on the board")
        ->check(CLI::Range(1, 65'536))
        ->capture_default_str();
    check_command->callback([=] { report(check_file(*request)); });

    CLI::App* convert_command = command->add_subcommand(
        "convert", "Prints an MSCCL file as the schedules that Weft makes of it: weft schedule convert ring.xml");
    convert_command->add_option("file", request->file, "File to read")->required();
    convert_command->callback([=] { report(convert(*request)); });

    add_simulate_command(*command, report);
}

}  // namespace weft::tools
