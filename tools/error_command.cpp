#include "tools/error_command.hpp"

#include <memory>
#include <string>

#include "src/base/error.hpp"
#include "src/base/printing.hpp"
#include "weft/weft.h"

namespace weft::internal::tools {
namespace {

void list_all() {
    for (const ErrorRow& row : error_rows()) print_output("{:24} {}\n", row.id, row.meaning);
}

// Also accepts the form of log lines: `[mismatch.count]`.
int explain_error(std::string id) {
    if (id.starts_with('[')) id.erase(0, 1);
    if (id.ends_with(']')) id.pop_back();
    const auto error = error_named(id);
    if (!error) {
        print_error("weft explain: error id `{}` does not exist; similar ids are:\n", id);
        for (const std::string& near : ids_near(id)) print_error("  {}\n", near);
        return 2;
    }
    const ErrorRow& row = row_of(*error);
    print_output("{} ({})\n  {}\nUsual causes\n  {}\nWhat to do\n  {}\n", row.id, weftGetErrorString(row.code),
                 row.meaning, row.causes, row.remedy);
    return 0;
}

}  // namespace

void add_error_command(CLI::App& app, int& exit_status) {
    auto id = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand(
        "explain", "Explains an error id: its meaning, usual causes and remedy; without an id, lists all of them");
    command->add_option("id", *id, "The id, as in the brackets at the end of an error: mismatch.count")
        ->option_text("ID");
    command->callback([=, &exit_status] {
        if (id->empty())
            list_all();
        else
            exit_status = explain_error(*id);
    });
}

}  // namespace weft::internal::tools
