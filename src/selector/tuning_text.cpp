#include "src/selector/tuning_text.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/base/json_text.hpp"

namespace weft::internal {

namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr size_t bytes_most = size_t(1) << 48;
constexpr double us_most = 1e12;
constexpr int cores_most = 1 << 20;

// Four digits: a measurement has no more.
double rounded(double value) {
    const std::string text = fmt::format("{:.4g}", value);
    std::from_chars(text.data(), text.data() + text.size(), value);  // independent of the locale
    return value;
}

// Reads a tuning from JSON of unknown content. It keeps the first objection.
class TuningReader {
  public:
    const Json* object(const Json& in, const char* key) { return field(in, key, "an object", &Json::is_object); }
    const Json* list(const Json& in, const char* key) { return field(in, key, "a list", &Json::is_array); }
    std::string text(const Json& in, const char* key) {
        const Json* value = field(in, key, "a text", &Json::is_string);
        return value ? value->get<std::string>() : "";
    }
    bool truth(const Json& in, const char* key) {
        const Json* value = field(in, key, "true or false", &Json::is_boolean);
        return value && value->get<bool>();
    }
    int64_t whole(const Json& in, const char* key, int64_t least, int64_t most) {
        const Json* value = field(in, key, "a whole number", &Json::is_number_integer);
        if (!value) return least;
        const double number = value->get<double>();
        if (number < double(least) || number > double(most))
            object_to(fmt::format("`{}` is {}, not {} to {}", key, value->dump(), least, most));
        return objection_.empty() ? value->get<int64_t>() : least;
    }
    double time(const Json& in, const char* key) {
        const Json* value = field(in, key, "a number", &Json::is_number);
        return value ? checked_time(*value, key) : 1;
    }
    std::vector<Tuning::Point> points(const Json& in) {
        std::vector<Tuning::Point> points;
        const Json* pairs = list(in, "us");
        if (!pairs) return points;
        for (const Json& pair : *pairs) {
            if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() || !pair[1].is_number()) {
                object_to("`us` is not made of pairs of bytes and microseconds");
                return points;
            }
            const double bytes = pair[0].get<double>();
            if (bytes < 0 || bytes > double(bytes_most) || (!points.empty() && bytes <= double(points.back().bytes)))
                object_to(fmt::format("in `us` {} bytes do not follow those before", pair[0].dump()));
            if (!objection_.empty()) return points;
            points.push_back({pair[0].get<size_t>(), checked_time(pair[1], "us")});
        }
        if (points.empty()) object_to("`us` is empty");
        return points;
    }
    void object_to(std::string objection) {
        if (objection_.empty()) objection_ = std::move(objection);
    }
    const std::string& objection() const { return objection_; }

  private:
    const Json* field(const Json& in, const char* key, const char* form, bool (Json::*has_form)() const noexcept) {
        const auto place = in.find(key);
        if (place == in.end())
            object_to(fmt::format("`{}` is missing", key));
        else if (!((*place).*has_form)())
            object_to(fmt::format("`{}` is not {}", key, form));
        else
            return &*place;
        return nullptr;
    }
    double checked_time(const Json& value, const char* key) {
        const double us = value.get<double>();
        if (us > 0 && us <= us_most) return us;
        object_to(fmt::format("`{}` holds {}, which no time can be", key, value.dump()));
        return 1;
    }
    std::string objection_;
};

Tuning::Curve read_curve(TuningReader& reader, const Json& row) {
    Tuning::Curve curve;
    if (!row.is_object()) {
        reader.object_to("it is not an object");
        return curve;
    }
    const std::string name = reader.text(row, "collective");
    if (const auto collective = collective_named(name))
        curve.collective = *collective;
    else
        reader.object_to(fmt::format("`{}` is no collective", name));
    curve.algorithm = reader.text(row, "algorithm");
    curve.ranks = int(reader.whole(row, "ranks", 2, Tuning::ranks_most));
    curve.hosts = int(reader.whole(row, "hosts", 1, curve.ranks));
    curve.points = reader.points(row);
    if (row.contains("apart")) curve.apart = reader.truth(row, "apart");
    return curve;
}

constexpr size_t tuning_notes_most = 20;  // bounds the log

void note_unknown(const Json& constants, std::vector<std::string>& notes) {
    for (const auto& [name, value] : constants.items()) {
        const auto is_it = [&name = name](const Tuning::Constant& constant) { return name == constant.name; };
        const auto table = Tuning::constant_table();
        if (notes.size() < tuning_notes_most && std::none_of(table.begin(), table.end(), is_it))
            notes.push_back(
                fmt::format("there is no constant {}: it counts for nothing", Json(name).dump(-1, ' ', true)));
    }
}

// Notes curves for the same key: nearest() uses the first one.
void note_doubled(const std::vector<Tuning::Curve>& curves, std::vector<std::string>& notes) {
    std::map<std::tuple<Collective, std::string, int, int, std::optional<bool>>, size_t> known;
    for (size_t i = 0; i < curves.size(); ++i) {
        const Tuning::Curve& curve = curves[i];
        const auto [first, fresh] =
            known.insert({{curve.collective, curve.algorithm, curve.ranks, curve.hosts, curve.apart}, i});
        if (!fresh && notes.size() < tuning_notes_most)
            notes.push_back(
                fmt::format("times[{}] are of what times[{}] are of, {} by {} of {} ranks on {} hosts: the "
                            "first count",
                            i, first->second, name_of(curve.collective), curve.algorithm, curve.ranks, curve.hosts));
    }
}

}  // namespace

Result<Tuning> read_tuning(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.is_object())
        return fail(error::option_tuning_file, "it is not JSON, or it is cut off");
    TuningReader reader;
    const int64_t format = reader.whole(json, "weft_tune", 0, INT_MAX);
    if (reader.objection().empty() && format != format_version)
        return fail(error::option_tuning_file, "it has format {}, but this version of Weft reads format {}", format,
                    format_version);
    Tuning tuning;
    tuning.version = reader.text(json, "weft");
    if (json.contains("simulated")) tuning.simulated = reader.text(json, "simulated");
    if (const Json* machine = reader.object(json, "machine")) {
        tuning.processor = reader.text(*machine, "processor");
        tuning.machine_cores = int(reader.whole(*machine, "cores", 1, cores_most));
        tuning.cores = int(reader.whole(*machine, "cores_used", 1, cores_most));
        tuning.link_mbps = reader.whole(*machine, "link_mbps", 0, INT_MAX);
        tuning.uses_cma = reader.truth(*machine, "kernel_copies");
    }
    if (const Json* constants = reader.object(json, "constants")) {
        for (const Tuning::Constant& constant : Tuning::constant_table())
            tuning.constants.*constant.member = reader.time(*constants, constant.name);
        note_unknown(*constants, tuning.notes);
    }
    if (!reader.objection().empty()) return fail(error::option_tuning_file, "{}", reader.objection());
    const Json* times = reader.list(json, "times");
    for (size_t i = 0; times && i < times->size() && reader.objection().empty(); ++i) {
        tuning.curves.push_back(read_curve(reader, (*times)[i]));
        if (!reader.objection().empty()) return fail(error::option_tuning_file, "times[{}]: {}", i, reader.objection());
    }
    if (!reader.objection().empty()) return fail(error::option_tuning_file, "{}", reader.objection());
    note_doubled(tuning.curves, tuning.notes);
    return tuning;
}

std::string tuning_text(const Tuning& tuning) {
    Json fitted_constants;
    for (const Tuning::Constant& constant : Tuning::constant_table())
        fitted_constants[constant.name] = rounded(tuning.constants.*constant.member);
    const Json machine = {{"processor", tuning.processor},
                          {"cores", tuning.machine_cores},
                          {"cores_used", tuning.cores},
                          {"link_mbps", tuning.link_mbps},
                          {"kernel_copies", tuning.uses_cma}};
    std::string lines = fmt::format(
        "{{\n\"weft_tune\": {},\n\"weft\": {},\n{}\"machine\": {},\n\"constants\": {},\n\"times\": [", format_version,
        json_text(Json(tuning.version)),
        tuning.simulated.empty() ? "" : fmt::format("\"simulated\": {},\n", json_text(Json(tuning.simulated))),
        json_text(machine), json_text(fitted_constants));
    // One curve per line, so that two files can be compared.
    for (const Tuning::Curve& curve : tuning.curves) {
        Json row = {{"collective", name_of(curve.collective)},
                    {"ranks", curve.ranks},
                    {"hosts", curve.hosts},
                    {"algorithm", curve.algorithm}};
        if (curve.apart) row["apart"] = *curve.apart;
        row["us"] = Json::array();
        for (const Tuning::Point& point : curve.points)
            row["us"].push_back(Json::array({point.bytes, rounded(point.us)}));
        lines += (&curve == &tuning.curves.front() ? "\n" : ",\n") + json_text(row);
    }
    return lines + "\n]\n}\n";
}

}  // namespace weft::internal
