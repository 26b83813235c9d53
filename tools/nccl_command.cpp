#include "tools/nccl_command.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/printing.hpp"

namespace weft::internal::tools {
namespace {

// The folder of the library, if both are installed, or that of the build.
int print_nccl_folder() {
    namespace fs = std::filesystem;
    std::error_code unseen;
    const fs::path self = fs::read_symlink("/proc/self/exe", unseen);
    std::string tried;
    for (const fs::path& folder :
         {self.parent_path() / WEFT_LIBRARY_FOLDER / "weft-nccl", self.parent_path().parent_path() / "src" / "nccl"}) {
        const std::string name = folder.lexically_normal().string();
        if (fs::exists(folder / "libnccl.so.2", unseen)) {
            print_output("{}\n", name);
            return 0;
        }
        tried += (tried.empty() ? "" : " or ") + name;
    }
    print_error("weft nccl-path: no libnccl.so.2 is in {}; build Weft with -Dnccl=enabled\n", tried);
    return 1;
}

}  // namespace

void add_nccl_command(CLI::App& app, int& exit_status) {
    CLI::App* command = app.add_subcommand(
        "nccl-path", "Prints the folder of Weft's libnccl.so.2: LD_LIBRARY_PATH=$(weft nccl-path) PROGRAM");
    command->callback([&exit_status] { exit_status = print_nccl_folder(); });
}

}  // namespace weft::internal::tools
