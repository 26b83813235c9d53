// module.cpp: the Python module of the backend. weft.torch imports it; see python/weft/torch/__init__.py.
#include <pybind11/chrono.h>
#include <torch/python.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend.hpp"
#include "process.hpp"

using namespace weft_torch;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    watch_forks();
    module.attr("torch_version") = TORCH_VERSION;
    py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(
        module, "Options", "Settings of a process group of Weft.")
        .def(py::init([](const std::string& algo, std::optional<bool> deterministic, bool high_priority_stream) {
                 auto options = c10::make_intrusive<GroupOptions>();
                 options->high_priority_stream = high_priority_stream;
                 options->algo = algo;
                 if (deterministic) options->deterministic = *deterministic;
                 return options;
             }),
             py::arg("algo") = "", py::arg("deterministic") = py::none(), py::arg("high_priority_stream") = false)
        .def_readwrite("algo", &GroupOptions::algo, "The algorithms that may be used, as in WEFT_ALGO.")
        .def_readwrite("high_priority_stream", &GroupOptions::high_priority_stream,
                       "Whether asynchronous calls on a device have streams of high priority.")
        .def_property_readonly("deterministic", [](const GroupOptions& options) { return options.deterministic == 1; });
    py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend",
                                                                    "A process group's communicator of Weft.")
        .def(
            "perform_nocolor_split", [](const Backend&, const py::object&) {}, py::arg("device"),
            "torch calls this on ranks that are no members of a new group. Members meet by the store without them.");
    module.def(
        "make",
        [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const GroupOptions& options,
           Milliseconds timeout, const std::string& name, const std::vector<int64_t>& global_ranks,
           [[maybe_unused]] bool enable_reconfigure) {
            auto own = c10::make_intrusive<GroupOptions>(options);
            own->timeout = timeout;
            own->group_name = name;
            own->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
#ifdef C10D_BACKEND_HAS_RECONFIGURE
            own->enable_reconfigure = enable_reconfigure;
#endif
            return c10::intrusive_ptr<c10d::Backend>(Backend::make(store, rank, size, std::move(own)));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("timeout"), py::arg("name"),
        py::arg("global_ranks"), py::arg("enable_reconfigure"), py::call_guard<py::gil_scoped_release>());
    module.def("shut_all_down", &shut_all_down, py::call_guard<py::gil_scoped_release>());
}
