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
#include "src/checker/checker.hpp"
#include "src/schedule/text.hpp"
#include "tools/algorithm_file.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/schedule_picture.hpp"
#include "tools/simulate_command.hpp"
#include "tools/simulate_scene.hpp"

namespace weft::internal::tools {
namespace {

// Limits of the output: a screenful for each rank, a few hundred megabytes at most.
constexpr int ranks_shown_most = 65'536;
constexpr int channels_shown_most = 64;
constexpr int tiles_shown_most = 64;
constexpr uint64_t bytes_drawn_most = 1 << 30;

struct Request {
    std::string algorithm;
    FileChoice said;  // of `collective` and so on
    std::string collective = name_of(Collective::all_reduce);
    int root = 0;
    int ranks = 0;  // 0: not given
    int rank = -1;  // all
    int channels = 1;
    int hosts = 1;
    std::string expansion;
    std::string file;
    PictureRequest picture;
    std::string readable;
    CheckOptions options;
};

Result<DirectMode> parse_readable(std::string_view list, int ranks) {
    DirectMode mode;
    mode.readable.assign(ranks, false);
    while (!list.empty()) {
        const std::string_view word = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), word.size() + 1));
        int rank = -1;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), rank);
        if (error != std::errc() || end != word.data() + word.size() || rank < 0 || rank >= ranks)
            return fail(error::command_option, "`{}` is not a rank from 0 to {}; an example is readable=0,2", word,
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
            return fail(error::command_option, "pipelined takes a number of tiles from 1 to {}, as in pipelined=4",
                        tiles_shown_most);
        if (!is_two_shot(schedule))
            return fail(error::command_option, "{} is not pipelined; two_shot is", schedule.algorithm);
        return expand_pipelined(schedule, {}, tiles);
    }
    return fail(
        error::command_option,
        "expansion `{}` does not exist; the expansions are staged, direct, readable=RANK,... and pipelined=TILES",
        text);
}

// The requested schedules and their row.
struct Made {
    std::vector<Schedule> schedules;
    const Algorithm* row = nullptr;
    std::shared_ptr<const FileAlgorithm> file;  // owns the row; null: the registry does
};

Status find_row(Request& request, Made& made) {
    if (is_algorithm_file(request.algorithm)) {
        auto file = algorithm_of_file(request.algorithm, request.said);
        if (!file) return file.take_status();
        made.file = std::move(*file);
        made.row = &made.file->row;
        print_assumption(request.algorithm, made.file->file);
        request.ranks = made.file->user.schedules[0].ranks;
        return ok();
    }
    if (request.ranks == 0)
        return fail(error::command_option, "--ranks is missing; a named algorithm takes any number of ranks");
    auto named = algorithm_named(request.algorithm, request.collective);
    if (!named) return named.take_status();
    made.row = *named;
    return ok();
}

Result<Made> make(Request request) {
    Made made;
    WEFT_TRY(find_row(request, made));
    const Algorithm* row = made.row;
    const bool rooted = facts_of(row->collective).rooted;
    if (!made.file && rooted && request.root >= request.ranks)
        return fail(error::command_option, "--root {} is not one of the {} ranks, 0 to {}", request.root, request.ranks,
                    request.ranks - 1);
    if (request.rank >= request.ranks)
        return fail(error::command_option, "--rank {} is not one of the {} ranks, 0 to {}", request.rank, request.ranks,
                    request.ranks - 1);
    if (request.hosts > request.ranks)
        return fail(error::command_option, "{} ranks do not fit on {} hosts", request.ranks, request.hosts);
    Layout layout = layout_in_blocks(request.ranks, request.hosts);
    if (const char* refusal = row->refusal(layout))
        return fail(error::command_option, "{} {}: --ranks {} --hosts {}", row->name, refusal, request.ranks,
                    request.hosts);
    for (int rank = 0; rank < request.ranks; ++rank) {
        if (request.rank >= 0 && rank != request.rank) continue;
        layout.rank = rank;
        auto schedule =
            expanded(row->schedule(layout, {.channels = request.channels, .root = rooted ? request.root : -1}),
                     request.expansion);
        if (!schedule) return schedule.take_status();
        made.schedules.push_back(std::move(*schedule));
    }
    return made;
}

Status draw(const Request& request, const Made& made) {
    if (request.rank >= 0)
        return fail(error::command_option, "a picture shows all ranks; give --svg or --rank, not both");
    if (request.picture.bytes > bytes_drawn_most)
        return fail(error::command_option, "--svg draws messages of up to {} bytes, and --bytes is {}",
                    bytes_drawn_most, request.picture.bytes);
    // The simulation of a wrong algorithm would mean nothing.
    if (made.file) WEFT_TRY(prove(*made.file));
    PictureRequest picture = request.picture;
    picture.hosts = request.hosts;
    const auto text = picture_of(made.schedules, *made.row, picture);
    if (!text) return text.status().copy();
    return write_file(picture.file, *text);
}

// --bytes chooses among a file's algorithms, and is drawn.
Status check_bytes(const Request& request) {
    if (!request.said.bytes || !request.picture.file.empty() || is_algorithm_file(request.algorithm)) return ok();
    return fail(error::command_option, "--bytes changes no schedule of {}: leave it out, or draw it with --svg",
                request.algorithm);
}

Status show(const Request& request) {
    WEFT_TRY(check_bytes(request));
    auto made = make(request);
    if (!made) return made.take_status();
    if (!request.picture.file.empty()) return draw(request, *made);
    print_output("{}", write_text(made->schedules));
    return ok();
}

Status build(const Request& request) {
    WEFT_TRY(check_bytes(request));
    auto made = make(request);
    if (!made) return made.take_status();
    return write_file(request.file, write_text(made->schedules));
}

Status convert(const Request& request) {
    const auto file = read_schedule_file(request.file, request.said.any_order);
    if (!file) return file.status().copy();
    print_assumption(request.file, *file);
    print_output("{}", write_text(file->schedules));
    return ok();
}

// One algorithm of a file.
Status check_set_of(const Request& request, const ScheduleFile& file, const std::vector<Schedule>& schedules) {
    auto mode = parse_readable(request.readable, int(schedules.size()));
    if (!mode) return mode.take_status();
    CheckOptions options = request.options;
    options.any_order = request.said.any_order;
    Proved proved;
    const Status status = file.check(schedules, request.readable.empty() ? DirectMode() : *mode, options, &proved);
    if (!status)
        return fail(error::algorithm_file, "{}: {}{}", request.file, status.sentence(),
                    proved.orders_differ ? "; --any-order lets that pass" : "");
    const char* order = !facts_of(schedules[0].collective).reduces ? ""
                        : proved.orders_differ                     ? "; ranks combine in different orders"
                        : proved.in_rank_order                     ? "; it combines in rank order"
                                                                   : "";
    print_output("{}: proved: {}, {} steps in all ways it can run{}\n", request.file, text_of(schedules[0]),
                 proved.steps, order);
    return ok();
}

// All algorithms of the file, as WEFT_ALGO_FILES takes them.
Status check_file(const Request& request) {
    auto file = read_schedule_file(request.file, request.said.any_order);
    if (!file) return file.take_status();
    const std::vector<std::vector<Schedule>> sets = file->take_sets();
    for (const std::vector<Schedule>& set : sets) WEFT_TRY(check_set_of(request, *file, set));
    print_assumption(request.file, *file);
    return ok();
}

// The options of the command line that a file must match.
void find_said(const CLI::App& command, Request& request) {
    request.said.ranks = request.ranks;
    if (command.count("--collective") > 0) request.said.collective = request.collective;
    if (command.count("--root") > 0) request.said.root = request.root;
    if (command.count("--channels") > 0) request.said.channels = request.channels;
    if (command.count("--bytes") > 0) request.said.bytes = request.picture.bytes;
}

}  // namespace

void add_schedule_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<Request>();
    CLI::App* command =
        app.add_subcommand("schedule", "Shows, writes, proves and simulates the schedules of algorithms");
    command->require_subcommand(1);
    auto report = [&exit_status](const Status& status) {
        if (!status) print_error("weft schedule: {}\n", status.text());
        // Errors of the command line are invalid arguments; errors of a file are not.
        exit_status = status ? 0 : status.code() == weftInvalidArgument ? 2 : 1;
    };
    auto add_algorithm = [request](CLI::App* to) {
        to->add_option("algorithm", request->algorithm,
                       "Its name, as in WEFT_ALGO, or a file: schedules as text, or MSCCL's XML")
            ->required();
        to->add_option("-n,--ranks", request->ranks, "Ranks of the communicator; a file has its own")
            ->check(CLI::Range(1, ranks_shown_most));
        to->add_option("--hosts", request->hosts,
                       "Hosts that the ranks are on, as many on each as divide evenly, neighbours together")
            ->check(CLI::Range(1, ranks_shown_most))
            ->capture_default_str();
        to->add_option("-c,--channels", request->channels, "Channels; a file has its own")
            ->check(CLI::Range(1, channels_shown_most))
            ->capture_default_str();
        to->add_option("--collective", request->collective, "What it is to do")->capture_default_str();
        to->add_option("--root", request->root, "Of a rooted collective")
            ->check(CLI::NonNegativeNumber)
            ->capture_default_str();
        to->add_option("-b,--bytes", request->picture.bytes,
                       "Of the largest buffer of the call: which of a file's algorithms is meant, and what --svg draws")
            ->transform(CLI::AsSizeValue(false))
            ->check(CLI::Range(uint64_t(1), simulated_bytes_most))
            ->capture_default_str();
        to->add_option("--expand", request->expansion,
                       "Fused instructions as the elementary ones they stand for: staged, direct, readable=RANK,... or "
                       "pipelined=TILES");
        add_any_order_flag(*to, request->said);
    };
    CLI::App* show_command =
        command->add_subcommand("show", "Prints schedules: weft schedule show ring --ranks 4, or of a file");
    add_algorithm(show_command);
    show_command->add_option("-r,--rank", request->rank, "Of this rank only")->check(CLI::NonNegativeNumber);
    CLI::Option* svg =
        show_command->add_option("--svg", request->picture.file, "File to draw them to, as tracks over time, instead");
    show_command
        ->add_option("--host", request->picture.host, "Kind of host whose times are drawn, as `simulate` has them")
        ->capture_default_str()
        ->needs(svg);
    show_command->callback([=] {
        find_said(*show_command, *request);
        report(show(*request));
    });

    CLI::App* build_command = command->add_subcommand(
        "build", "Writes the schedules of all ranks: weft schedule build ring --ranks 4 -o ring.txt");
    add_algorithm(build_command);
    build_command->add_option("-o,--output", request->file, "File to write")->required();
    build_command->callback([=] {
        find_said(*build_command, *request);
        report(build(*request));
    });

    CLI::App* check_command = command->add_subcommand(
        "check", "Proves the schedules of all ranks in a file, or prints the fault: weft schedule check ring.txt");
    check_command->add_option("file", request->file, "File to read: schedules as text, or MSCCL's XML")->required();
    check_command->add_option("--readable", request->readable, "Ranks that `either` reads in place, as in 0,2");
    check_command
        ->add_option("--fifo-depth", request->options.fifo_depth,
                     "Slots of each connection, instead of as many as the schedules ask for")
        ->check(CLI::Range(1, 65'536));
    check_command->add_option("--board-slots", request->options.flag_slots, "Slots of each rank on the board")
        ->check(CLI::Range(1, 65'536))
        ->capture_default_str();
    add_any_order_flag(*check_command, request->said);
    check_command->callback([=] { report(check_file(*request)); });

    CLI::App* convert_command = command->add_subcommand(
        "convert", "Prints an MSCCL file as the schedules that Weft makes of it: weft schedule convert ring.xml");
    convert_command->add_option("file", request->file, "File to read")->required();
    add_any_order_flag(*convert_command, request->said);
    convert_command->callback([=] { report(convert(*request)); });

    add_simulate_command(*command, report);
}

}  // namespace weft::internal::tools
