// The functions of LiteRT-LM 0.18 that the C++ of the model card calls, as the library exports them; the wheel has no header.
#pragma once

#include <cstddef>

struct LiteRtLmEngineSettings;
struct LiteRtLmEngine;
struct LiteRtLmSessionConfig;
struct LiteRtLmSession;
struct LiteRtLmInputData;
struct LiteRtLmResponses;
enum LiteRtLmInputDataType { kLiteRtLmInputDataTypeText };

extern "C" {
LiteRtLmEngineSettings* litert_lm_engine_settings_create(const char* model, const char* backend, const char* vision,
                                                         const char* audio);
void litert_lm_engine_settings_set_cache_dir(LiteRtLmEngineSettings* settings, const char* folder);
LiteRtLmEngine* litert_lm_engine_create(const LiteRtLmEngineSettings* settings);
LiteRtLmSessionConfig* litert_lm_session_config_create();
void litert_lm_session_config_set_apply_prompt_template(LiteRtLmSessionConfig* config, bool apply);
void litert_lm_session_config_set_max_output_tokens(LiteRtLmSessionConfig* config, int tokens);
LiteRtLmSession* litert_lm_engine_create_session(LiteRtLmEngine* engine, LiteRtLmSessionConfig* config);
LiteRtLmInputData* litert_lm_input_data_create(LiteRtLmInputDataType type, const void* data, std::size_t size);
LiteRtLmResponses* litert_lm_session_generate_content(LiteRtLmSession* session, const LiteRtLmInputData* const* inputs,
                                                      std::size_t count);
const char* litert_lm_responses_get_response_text_at(const LiteRtLmResponses* responses, int index);
}
