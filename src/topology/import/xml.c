/* SPDX-License-Identifier: Apache-2.0
 *
 * See xml.h. Entities are refused, because a few of them can make a small file
 * a huge text.
 */
#include "topology/import/xml.h"

#include <expat.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"

void
uli_xml_stop(struct uli_xml *xml, ulyx_status_t status)
{
    if (xml->status == ULYX_SUCCESS)
        xml->status = status;
    XML_StopParser(xml->parser, XML_FALSE);
}

void
uli_xml_refuse(struct uli_xml *xml, const char *format, ...)
{
    char text[256];
    va_list values;
    if (xml->status != ULYX_SUCCESS)
        return;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    uli_xml_stop(
        xml, uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s:%lu: %s", xml->name,
                 (unsigned long)XML_GetCurrentLineNumber(xml->parser), text));
}

static void
on_start(void *context, const char *element, const char **attributes)
{
    struct uli_xml *xml = context;
    if (xml->depth >= xml->depth_max)
        uli_xml_refuse(xml, "elements more than %d deep", xml->depth_max);
    else
        xml->on_start(xml, element, attributes);
    xml->depth++;
}

static void
on_end(void *context, const char *element)
{
    struct uli_xml *xml = context;
    xml->depth--;
    if (xml->on_end && xml->status == ULYX_SUCCESS)
        xml->on_end(xml, element);
}

static void
on_text(void *context, const char *text, int length)
{
    struct uli_xml *xml = context;
    if (xml->on_text && xml->status == ULYX_SUCCESS)
        xml->on_text(xml, text, (size_t)length);
}

static void
on_entity(void *context, const char *entity, int is_parameter,
    const char *value, int value_length, const char *base, const char *system,
    const char *public_id, const char *notation)
{
    (void)is_parameter, (void)value, (void)value_length, (void)base;
    (void)system, (void)public_id, (void)notation;
    uli_xml_refuse(context, "entities are refused: %.60s", entity);
}

ulyx_status_t
uli_xml_read(struct uli_xml *xml, const char *text, size_t bytes)
{
    XML_Parser parser = XML_ParserCreate(NULL);
    if (!parser)
        return uli_error(ULYX_ERR_NO_MEMORY, "%s: no memory", xml->name);
    xml->parser = parser;
    XML_SetUserData(parser, xml);
    XML_SetElementHandler(parser, on_start, on_end);
    XML_SetCharacterDataHandler(parser, on_text);
    XML_SetEntityDeclHandler(parser, on_entity);
    if (XML_Parse(parser, text, (int)bytes, 1) == XML_STATUS_ERROR)
        uli_xml_refuse(xml, "%s", XML_ErrorString(XML_GetErrorCode(parser)));
    XML_ParserFree(parser);
    xml->parser = NULL;
    return xml->status;
}

const char *
uli_xml_attribute(const char **attributes, const char *name)
{
    for (; *attributes; attributes += 2)
        if (strcmp(attributes[0], name) == 0)
            return attributes[1];
    return NULL;
}
